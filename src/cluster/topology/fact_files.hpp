// SPDX-License-Identifier: Apache-2.0
// Reads keys, lists and numbers from the kernel's small files in /proc and /sys. Missing ones are
// empty.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Returns the value after "key :" or "key:" in a file of such lines; "" if there is none.
std::string value_of(const std::string& text, std::string_view key);

/// Returns directory entries in order of name; none if the directory is missing.
std::vector<std::filesystem::path> entries_of(const std::filesystem::path& directory);

/// Returns the CPU list in `file`; nothing if it is missing, empty or no list.
std::optional<std::vector<int>> cpu_list_in(const std::filesystem::path& file);

/// Returns the whole number in `file`, or `otherwise`.
std::int64_t integer_in(const std::filesystem::path& file, std::int64_t otherwise);

}  // namespace lockstep
