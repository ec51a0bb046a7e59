// SPDX-License-Identifier: Apache-2.0
/// @file
/// What somebody wants to see first of data that they do not know.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace lockstep {

/// How a first look is shown.
struct FirstLookOptions {
    std::size_t columns = 80;     ///< of the terminal; names and numbers that are longer stay whole
    std::filesystem::path sheet;  ///< PNG of some images that is written; "": none
    bool as_json = false;         ///< an object with the same facts, for programs
};

/// A packed data set, or HDF5 files of others as foreign_files() takes them, of which the first is
/// looked into: its data sets as a tree with type, size, storage and range, how often each class
/// occurs, whether up to 16 more files have the same data sets, and the line that trains on it.
/// Reads samples of rows, and says how many: of each data set at most 8 MiB, or one row, or what
/// lies in the same chunks. Nothing is followed into other files. Errors: those of opening; E217
/// (no images for the sheet); those of writing it.
std::string first_look(const std::filesystem::path& where, const FirstLookOptions& options);

}  // namespace lockstep
