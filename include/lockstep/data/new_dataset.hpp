// SPDX-License-Identifier: Apache-2.0
/// @file
/// A new HDF5 file of one data set, whose values are written without the HDF5 library.
#pragma once

#include "lockstep/data/manifest.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

/// Makes the file, readable by HDF5 1.8 and later, with data set `name` of `shape`, which has at
/// least one element. Returns where its values begin: they lie there in C order, one behind the
/// other, and are for anyone to write; until then they are 0. Equal arguments give equal bytes.
/// Errors: E401 and kin (it exists, or its folder does not), E402, E405.
std::uint64_t create_dataset_file(const std::filesystem::path& path,
                                  const std::string& name,
                                  ElementType type,
                                  const std::vector<std::int64_t>& shape);

}  // namespace lockstep
