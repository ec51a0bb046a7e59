// SPDX-License-Identifier: Apache-2.0
// Defaults of a user and of a site, from files that every command reads.
#pragma once

#include "command.hpp"

#include <vector>

namespace lockstep {

/// Returns the user's file (~/.config/lockstep/config.toml, or below $XDG_CONFIG_HOME), then the
/// site's (/etc/lockstep/config.toml, or $LOCKSTEP_SITE_CONFIG; none if that is empty), if they
/// exist. Errors: E110 to E116.
std::vector<Config> read_standing_configs(const Environment& environment);

/// Checks that options are in a table with their command's name: [train], [bench.comm]. Errors:
/// E111 for any other table or key.
void check_sections(const Config& config, const std::vector<Command>& commands);

/// Returns these files' values for the options of `command`, and those of train if it also takes
/// them. Nothing if it has no options. Errors: E110 to E116.
std::vector<Config> standing_values(const Command& command,
                                    const std::vector<Command>& commands,
                                    const Environment& environment);

}  // namespace lockstep
