// SPDX-License-Identifier: Apache-2.0
// Reads a command's options from words, variables and files; every value keeps its origin.
#pragma once

#include "lockstep/core/config.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/options.hpp"

#include <map>
#include <string>
#include <vector>

namespace lockstep {

/// The origin of a table's option.
struct ResolvedOption {
    std::string name, text, origin;
    std::vector<GivenValue> overridden;  ///< weaker sources that also gave a value
    OptionKind kind = OptionKind::text;
};

struct ParsedLine {
    std::map<std::string, std::string> options;
    std::vector<std::string> positionals;
    bool wants_help = false;
};

/// Splits `words` by `table`. Errors: E101 unknown option (with the nearest), E104 given twice,
/// E105 value missing.
ParsedLine parse_line(const std::vector<std::string>& words, const OptionTable& table);

/// Assigns every option: command line over LOCKSTEP_* over the file of --config over `standing`
/// (the strongest first; standing_values() makes them) over the default. Errors: E102, E103, E110
/// to E116.
std::vector<ResolvedOption> resolve_options(const OptionTable& table,
                                            const ParsedLine& line,
                                            const Environment& environment,
                                            const std::vector<Config>& standing = {});

/// Returns the options in the form of --help.
std::string options_help(const OptionTable& table);

}  // namespace lockstep
