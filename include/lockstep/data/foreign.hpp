// SPDX-License-Identifier: Apache-2.0
/// @file
/// Maps data sets of HDF5 files of other programs to the fields of a data set.
#pragma once

#include "lockstep/core/options.hpp"
#include "lockstep/data/dataset_index.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Parses "NAME=PATH", "NAME=PATH:LAYOUT" and either with ":cf" or ":cf=NUMBER" behind it, as for
/// `--field`. "FILE:/PATH" names files of the field alone. Letters after a path's last colon are a
/// layout. Errors: E235, also for an unknown layout, and for class numbers with ":cf".
FieldMapping parse_field_mapping(std::string_view text);

/// Returns a text from which parse_field_mapping() makes `mapping`.
std::string mapping_text(const FieldMapping& mapping);

/// Parses several, with commas between them; none for "".
std::vector<FieldMapping> parse_field_mappings(std::string_view text, Links links = Links::refused);

/// For commands that need packed data. Errors: E216 with the command that packs them if `where` are
/// foreign HDF5 files; other faults are for other checks.
void check_is_packed(const fs::path& where);

/// Returns the files that `where` names; it may hold several names with commas between them. A file
/// stands for itself. A folder stands for its *.h5, *.hdf5, *.hdf and *.he5, by name, without
/// hidden ones (".a.h5"), which one warning counts. Any other text is a pattern
/// ("runs/*/part-?.h5"), and its matches are sorted by name. Errors: E201 if there are none.
std::vector<fs::path> foreign_files(const fs::path& where);

/// As many words a shell may make of an unquoted pattern.
inline constexpr std::size_t most_data_words = 1 << 20;

/// --`name` DIR|FILE, which may be given several times; what foreign_files() takes.
Option data_option(const std::string& name, fs::path& target, const std::string& help);

/// --`name` NAME=[FILE:]PATH[:LAYOUT][:cf]; what parse_field_mappings() takes. Errors of its
/// assign(): E235.
Option field_option(const std::string& name, std::string& target, const std::string& help);

/// --follow-links, of whatever --field names.
Option links_option(bool& target);

/// What it says.
Links links_of(bool follows_links);

/// What positional words name together, as if they were given to a data_option().
fs::path data_of_words(const std::vector<std::string>& words);

/// How field number `field` becomes `numbers`, a Python expression of its array `x` and of NumPy,
/// `n`, without single quotes: of foreign files a command that writes them again.
std::string way_to_rewrite(const DatasetIndex& data, std::size_t field, const std::string& numbers);

/// How field number `field` gets another name, and `layout` behind it (":label" or "").
std::string way_to_rename(const DatasetIndex& data,
                          std::size_t field,
                          const std::string& name,
                          const std::string& layout = "");

/// "row 17 of '/x' in 'b.h5'": where sample number `sample` has its value of `field`.
std::string row_text(const DatasetIndex& data, const Field& field, std::uint64_t sample);

}  // namespace lockstep
