// SPDX-License-Identifier: Apache-2.0
/// @file
/// How a command line names data, the same for all commands.
///
///     DIR                                        a packed data set
///     FILE, FILE,FILE, DIR or 'PATTERN'          HDF5 files that others wrote, with
///     --field NAME=PATH[:LAYOUT][:cf]            once for each field
///     --follow-links                             also what links of theirs lead to
#pragma once

#include "lockstep/core/options.hpp"
#include "lockstep/data/foreign.hpp"

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

/// As many words a shell may make of an unquoted pattern.
inline constexpr std::size_t most_data_words = 1 << 20;

/// --`name` DIR|FILE, which may be given several times; what foreign_files() takes.
Option data_option(const std::string& name, std::filesystem::path& target, const std::string& help);

/// --`name` NAME=PATH[:LAYOUT][:cf]; what parse_field_mappings() takes. Errors of its assign():
/// E235.
Option field_option(const std::string& name, std::string& target, const std::string& help);

/// --follow-links, of whatever --field names.
Option links_option(bool& target);

/// What it says.
Links links_of(bool follows_links);

/// What positional words name together, as if they were given to a data_option().
std::filesystem::path data_of_words(const std::vector<std::string>& words);

}  // namespace lockstep
