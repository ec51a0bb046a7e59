// SPDX-License-Identifier: Apache-2.0
// A folder for one command, removed at its end with all its content.
#pragma once

#include "lockstep/core/error.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include <fmt/format.h>

namespace lockstep {

class ScratchFolder {
  public:
    /// Makes `parent`/lockstep-`purpose`-XXXXXX. Throws E401 with `fix` if it cannot be made.
    ScratchFolder(const std::filesystem::path& parent,
                  const std::string& purpose,
                  const std::string& fix) {
        std::string name = parent / ("lockstep-" + purpose + "-XXXXXX");
        check(::mkdtemp(name.data()) != nullptr, [&] {
            return Error("E401",
                         fmt::format("cannot make a folder in '{}'", parent.string()),
                         std::strerror(errno),
                         fix);
        });
        path_ = name;
    }
    ~ScratchFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    ScratchFolder(const ScratchFolder&) = delete;
    ScratchFolder& operator=(const ScratchFolder&) = delete;

    const std::filesystem::path& path() const { return path_; }
    std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

  private:
    std::filesystem::path path_;
};

}  // namespace lockstep
