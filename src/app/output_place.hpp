// SPDX-License-Identifier: Apache-2.0
// Places on disk that a command needs: its result's, asked before the work, and a folder for the
// time of the command, gone with all that is in it.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include <fmt/format.h>
#include <unistd.h>

namespace lockstep {

/// Checks the folder of `file`. Errors: E401 if this user may not write to it, or if `file` is a
/// folder itself.
inline void check_output_place(const fs::path& file) {
    const auto folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
    const int reason = ::access(folder.c_str(), W_OK | X_OK) == 0 ? 0 : errno;
    const bool is_folder = fs::is_directory(status_of(file));
    check(reason == 0 && !is_folder, [&] {
        return Error("E401",
                     fmt::format("'{}' cannot be written", file.string()),
                     is_folder ? "it is a folder" : std::strerror(reason),
                     "give another file with --out");
    });
}

/// Makes `parent`/lockstep-`purpose`-XXXXXX. Errors: E401 with `fix`.
inline RemovedFolder make_scratch_folder(const fs::path& parent,
                                         const std::string& purpose,
                                         const std::string& fix) {
    std::string name = parent / ("lockstep-" + purpose + "-XXXXXX");
    check(::mkdtemp(name.data()) != nullptr, [&] {
        return Error("E401",
                     fmt::format("cannot make a folder in '{}'", parent.string()),
                     std::strerror(errno),
                     fix);
    });
    return RemovedFolder(name);
}

}  // namespace lockstep
