// SPDX-License-Identifier: Apache-2.0
// Checks that a file can be written later, before the work that produces it.
#pragma once

#include "lockstep/core/error.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>
#include <unistd.h>

namespace lockstep {

/// Checks the folder of `file`. Errors: E401 if this user may not write to it, or if `file` is a
/// folder itself.
inline void check_output_place(const std::filesystem::path& file) {
    const auto folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
    const int reason = ::access(folder.c_str(), W_OK | X_OK) == 0 ? 0 : errno;
    std::error_code ignored;
    const bool is_folder = std::filesystem::is_directory(file, ignored);
    check(reason == 0 && !is_folder, [&] {
        return Error("E401",
                     fmt::format("'{}' cannot be written", file.string()),
                     is_folder ? "it is a folder" : std::strerror(reason),
                     "give another file with --out");
    });
}

}  // namespace lockstep
