// SPDX-License-Identifier: Apache-2.0
/// @file
/// Maps data sets of HDF5 files of other programs to the fields of a data set.
#pragma once

#include "lockstep/data/field_mapping.hpp"

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Parses "NAME=PATH", "NAME=PATH:LAYOUT" and either with ":cf" or ":cf=NUMBER" behind it, as for
/// `--field`. Letters after a path's last colon are a layout. Errors: E235, also for an unknown
/// layout, and for class numbers with ":cf".
FieldMapping parse_field_mapping(std::string_view text);

/// Returns a text from which parse_field_mapping() makes `mapping`.
std::string mapping_text(const FieldMapping& mapping);

/// Parses several, with commas between them; none for "".
std::vector<FieldMapping> parse_field_mappings(std::string_view text, Links links = Links::refused);

/// For commands that need packed data. Errors: E216 with the command that packs them if `where` are
/// foreign HDF5 files; other faults are for other checks.
void check_is_packed(const std::filesystem::path& where);

/// Returns the files that `where` names; it may hold several names with commas between them. A file
/// stands for itself. A folder stands for its *.h5, *.hdf5, *.hdf and *.he5, by name, without
/// hidden ones (".a.h5"), which one warning counts. Any other text is a pattern
/// ("runs/*/part-?.h5"), and its matches are sorted by name. Errors: E201 if there are none.
std::vector<std::filesystem::path> foreign_files(const std::filesystem::path& where);

}  // namespace lockstep
