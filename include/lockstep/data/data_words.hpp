// SPDX-License-Identifier: Apache-2.0
/// @file
/// The options by which all commands name data:
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

/// Largest number of files that a shell may make of an unquoted pattern.
inline constexpr std::size_t most_data_words = 1 << 20;

/// Makes --`name` DIR|FILE, which may be given several times; its value is for foreign_files().
Option data_option(const std::string& name, std::filesystem::path& target, const std::string& help);

/// Makes --`name` NAME=PATH[:LAYOUT][:cf]; its value is for parse_field_mappings(). Errors of its
/// assign(): E235.
Option field_option(const std::string& name, std::string& target, const std::string& help);

/// Makes --follow-links, for all fields.
Option links_option(bool& target);

/// Returns the rule for links that the option means.
Links links_of(bool follows_links);

/// Returns the value of a data_option() for data given as positional arguments.
std::filesystem::path data_of_words(const std::vector<std::string>& words);

}  // namespace lockstep
