// SPDX-License-Identifier: Apache-2.0
// What a user and a site want as defaults, from files that every command reads.
#pragma once

#include "command.hpp"

#include <vector>

namespace lockstep {

/// The user's file (~/.config/lockstep/config.toml, or below $XDG_CONFIG_HOME), then the site's
/// (/etc/lockstep/config.toml, or $LOCKSTEP_SITE_CONFIG; none where that is empty); those that
/// exist. Errors: E110 to E116.
std::vector<Config> read_standing_configs(const Environment& environment);

/// Options in them stand in a table with their command's name: [train], [bench.comm]. Errors: E111
/// for any other table or key.
void check_sections(const Config& config, const std::vector<Command>& commands);

/// What these files say of the options of `command`; where it takes the options of train along, of
/// those, too. Nothing where it has no options. Errors: E110 to E116.
std::vector<Config> standing_values(const Command& command,
                                    const std::vector<Command>& commands,
                                    const Environment& environment);

}  // namespace lockstep
