// SPDX-License-Identifier: Apache-2.0
/// @file
/// A field of a data set and its place in HDF5 files of other programs.
#pragma once

#include <optional>
#include <string>

namespace lockstep {

/// The meaning of a field's rows. `label`: class numbers or names, which are counted when the files
/// are opened; `one_hot`: K numbers, 1 in the place of the class and else 0; `value`: neither class
/// numbers nor axes, for any name of the field.
enum class RowLayout { unstated, chw, hwc, hw, label, one_hot, value };

/// The axes of images of three dimensions in the input; data sets have CHW. `unstated` is CHW,
/// unless the sizes look like HWC, which is an error.
enum class ImageLayout { unstated, chw, hwc };

/// Permission to read values from other files than the named one: links, virtual data sets,
/// external storage. A file may name any other that this user can read.
enum class Links { refused, followed };

/// Conversion of packed numbers by the attributes of the CF conventions.
struct CfValues {
    /// Value for missing numbers, also NaN; nothing: a missing number is an error.
    std::optional<double> instead;
    bool operator==(const CfValues&) const = default;
};

/// A field and its place in each file.
struct FieldMapping {
    std::string name;       ///< name for training: "images", "labels"
    std::string hdf5_path;  ///< path of the data set, e.g. "/x/data"
    /// A scalar field named "labels" is a label unless this says otherwise.
    RowLayout layout = RowLayout::unstated;
    std::optional<CfValues> cf = {};  ///< nothing: numbers are used as stored
    Links links = Links::refused;     ///< not part of its text: one option is for all fields
    bool operator==(const FieldMapping&) const = default;
};

}  // namespace lockstep
