// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which data sets of HDF5 files that others wrote are the fields of a data set.
#pragma once

#include "lockstep/data/field_mapping.hpp"

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// "NAME=PATH", "NAME=PATH:LAYOUT" and either with ":cf" or ":cf=NUMBER" behind it, as `--field`
/// takes it. Errors: E235, also for a layout that there is not (what follows a path's last colon is
/// one if it has letters only), and for class numbers with ":cf".
FieldMapping parse_field_mapping(std::string_view text);

/// What parse_field_mapping() makes `mapping` of.
std::string mapping_text(const FieldMapping& mapping);

/// Several, with commas between them; none for "".
std::vector<FieldMapping> parse_field_mappings(std::string_view text, Links links = Links::refused);

/// For what works on packed data alone. Errors: E216 with the command that packs them if `where`
/// are HDF5 files that others wrote; other places are for others to judge.
void check_is_packed(const std::filesystem::path& where);

/// The files that `where` names; several, with commas between them, name those of each. One is
/// itself if it is a file; the *.h5, *.hdf5, *.hdf and *.he5 in it,
/// by name, if it is a folder, but for hidden ones (".a.h5"), which one warning counts; else what
/// the pattern matches ("runs/*/part-?.h5"), by name. Errors: E201 if that is nothing.
std::vector<std::filesystem::path> foreign_files(const std::filesystem::path& where);

}  // namespace lockstep
