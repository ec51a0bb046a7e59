// SPDX-License-Identifier: Apache-2.0
/// @file
/// A new HDF5 file with one data set, whose values are written without the HDF5 library.
#pragma once

#include "lockstep/data/manifest.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

/// Makes the file, readable by HDF5 1.8 and later, with data set `name` of `shape`, which has at
/// least one element. Returns the offset of its values: they are contiguous in C order, and 0 until
/// somebody writes them. Equal arguments give equal bytes. Errors: E401 and similar (it exists, or
/// its folder does not), E402, E405.
std::uint64_t create_dataset_file(const std::filesystem::path& path,
                                  const std::string& name,
                                  ElementType type,
                                  const std::vector<std::int64_t>& shape);

}  // namespace lockstep
