// SPDX-License-Identifier: Apache-2.0
// A large file that appears under its name when it is whole.
#pragma once

#include "lockstep/core/files.hpp"

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <utility>

namespace lockstep {

/// Written beside `path` as .NAME.partial, which goes if finish() is not reached.
class NewFile {
  public:
    /// Errors: E407 if `path` exists, E401.
    explicit NewFile(const std::filesystem::path& path);
    ~NewFile();
    NewFile(const NewFile&) = delete;
    NewFile& operator=(const NewFile&) = delete;

    void write(std::span<const std::byte> bytes);  ///< Errors: E402, E405
    std::uint64_t bytes() const { return bytes_; }

    /// `wrote` hears bytes() after each write.
    void tell(std::function<void(std::uint64_t)> wrote) { wrote_ = std::move(wrote); }

    /// Flushed and renamed.
    void finish();

  private:
    std::filesystem::path path_, partial_;
    UniqueFd fd_;
    std::uint64_t bytes_ = 0;
    std::function<void(std::uint64_t)> wrote_;
    bool is_finished_ = false;
};

}  // namespace lockstep
