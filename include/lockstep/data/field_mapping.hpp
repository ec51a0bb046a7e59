// SPDX-License-Identifier: Apache-2.0
/// @file
/// A field of a data set and where it lies in HDF5 files that others wrote.
#pragma once

#include <optional>
#include <string>

namespace lockstep {

/// What a field's rows are. `label`: class numbers or names, which are counted when the files are
/// opened; `one_hot`: K numbers, 1 in the place of the class and else 0; `value`: no class numbers
/// and no axes, whatever the field is called.
enum class RowLayout { unstated, chw, hwc, hw, label, one_hot, value };

/// How images of three dimensions lie in the input; data sets have CHW. `unstated` is CHW, unless
/// the sizes look like HWC: then it is an error.
enum class ImageLayout { unstated, chw, hwc };

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

}  // namespace lockstep
