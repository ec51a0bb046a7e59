// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which data sets of HDF5 files that others wrote are the fields of a data set.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// What a field's rows are. `label`: class numbers or names, which are counted when the files are
/// opened; `one_hot`: K numbers, 1 in the place of the class and else 0; `value`: no class numbers
/// and no axes, whatever the field is called.
enum class RowLayout { unstated, chw, hwc, hw, label, one_hot, value };

/// What is done about data sets whose values lie in other files than the one that is named:
/// links, virtual data sets, external storage. A file may name any other that this user can read.
enum class Links { refused, followed };

/// That numbers are taken for what the attributes of the CF conventions say they stand for.
struct CfValues {
    /// In the place of missing ones, also NaN; nothing: one is an error.
    std::optional<double> instead;
    bool operator==(const CfValues&) const = default;
};

/// A field and where it lies in each file.
struct FieldMapping {
    std::string name;       ///< what training calls it: "images", "labels"
    std::string hdf5_path;  ///< of the data set, e.g. "/x/data"
    /// A scalar field named "labels" is a label unless it says else.
    RowLayout layout = RowLayout::unstated;
    std::optional<CfValues> cf = {};  ///< nothing: numbers are taken as they are stored
    Links links = Links::refused;     ///< not of its text: one word is for all fields
    bool operator==(const FieldMapping&) const = default;
};

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
