// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which data sets of HDF5 files that others wrote are the fields of a data set.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// What a field's rows are. `label`: class numbers, which are counted when the files are opened;
/// `value`: no class numbers and no axes, whatever the field is called.
enum class RowLayout { unstated, chw, hwc, hw, label, value };

/// What is done about data sets whose values lie in other files than the one that is named:
/// links, virtual data sets, external storage. A file may name any other that this user can read.
enum class Links { refused, followed };

/// A field and where it lies in each file.
struct FieldMapping {
    std::string name;       ///< what training calls it: "images", "labels"
    std::string hdf5_path;  ///< of the data set, e.g. "/x/data"
    /// A scalar field named "labels" is a label unless it says else.
    RowLayout layout = RowLayout::unstated;
    bool operator==(const FieldMapping&) const = default;
};

/// "NAME=PATH" or "NAME=PATH:LAYOUT", as `--field` takes it. Errors: E235, also for a layout that
/// there is not: what follows a path's last colon is one if it has letters only.
FieldMapping parse_field_mapping(std::string_view text);

/// Several, with commas between them; none for "".
std::vector<FieldMapping> parse_field_mappings(std::string_view text);

/// The files that `where` names: itself if it is a file; the *.h5, *.hdf5, *.hdf and *.he5 in it,
/// by name, if it is a folder, but for hidden ones (".a.h5"), which one warning counts; else what
/// the pattern matches ("runs/*/part-?.h5"), by name. Errors: E201 if that is nothing.
std::vector<std::filesystem::path> foreign_files(const std::filesystem::path& where);

}  // namespace lockstep
