// SPDX-License-Identifier: Apache-2.0
/// @file
/// The memory limit that control groups set on this process.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace lockstep {

/// The smallest limit of this process's control group and those above it, version 1 or 2, below
/// `root`; nothing if none is set.
std::optional<std::uint64_t> control_group_memory_limit(const std::filesystem::path& root);

/// The first 1 MiB of the file, without white space at the end; "" if it cannot be read.
std::string text_of(const std::filesystem::path& path);

}  // namespace lockstep
