// SPDX-License-Identifier: Apache-2.0
// The kernel's small files: keys, lists and numbers out of /proc and /sys. What is missing is
// empty.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// The value after "key :" or "key:" in a file of such lines; "" if there is none.
std::string value_of(const std::string& text, std::string_view key);

/// Directory entries in order of name; none if the directory is missing.
std::vector<std::filesystem::path> entries_of(const std::filesystem::path& directory);

/// The CPU list that `file` holds; nothing if it is missing, empty or no list.
std::optional<std::vector<int>> cpu_list_in(const std::filesystem::path& file);

/// The whole number that `file` holds, or `otherwise`.
std::int64_t integer_in(const std::filesystem::path& file, std::int64_t otherwise);

}  // namespace lockstep
