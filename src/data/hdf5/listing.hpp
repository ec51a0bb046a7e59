// SPDX-License-Identifier: Apache-2.0
// Finds out which data sets a file has, in this process.
#pragma once

#include "file_facts.hpp"

#include <cstddef>

namespace lockstep {

/// No list has more.
inline constexpr std::size_t most_listed = 64;

/// The data sets of a file, by name, in groups of any depth; links into other files are not
/// followed. As dangerous as look_at_file(). Errors: E205; E201, E202.
FileRequest list_datasets(const std::filesystem::path& path);

}  // namespace lockstep
