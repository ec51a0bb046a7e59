// SPDX-License-Identifier: Apache-2.0
// A folder of its own for one test, gone when the test is.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace lockstep::test {

/// Owns a fresh folder below the system's temporary one. Not movable: tests keep paths into it.
class TempDir {
  public:
    TempDir() {
        std::string name = std::filesystem::temp_directory_path() / "lockstep-test-XXXXXX";
        if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed: " + name);
        path_ = name;
    }
    ~TempDir() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TempDir(const TempDir&) = delete;
    TempDir& operator=(const TempDir&) = delete;

    const std::filesystem::path& path() const { return path_; }
    std::filesystem::path operator/(const std::filesystem::path& name) const {
        return path_ / name;
    }

    /// Writes `content` to file `name`, with the folders above it; returns its path.
    std::filesystem::path file(const std::filesystem::path& name, std::string_view content) const {
        const std::filesystem::path full = path_ / name;
        std::filesystem::create_directories(full.parent_path());
        std::ofstream(full, std::ios::binary) << content;
        return full;
    }

  private:
    std::filesystem::path path_;
};

/// The whole content of `path`, or "" if there is none.
inline std::string content_of(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace lockstep::test
