// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

namespace lockstep {

/// NPY, with names beside it in a JSON; HDF5 with data set "predictions", and with "names" of rows
/// and "classes" where they have some; CSV with a line for each sample.
enum class OutputFormat { npy, hdf5, csv };

/// By the file's ending. Errors: E103.
OutputFormat output_format(const std::filesystem::path& path);

/// Returns "new.names.json" of "new.npy".
std::filesystem::path names_file(std::filesystem::path outputs);

}  // namespace lockstep
