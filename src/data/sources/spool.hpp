// SPDX-License-Identifier: Apache-2.0
// Rows that an input delivers only once and in order, kept in a nameless file to be read at random.
#pragma once

#include "column.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

namespace lockstep {

/// One writer; then finish() and read by any number of threads. The file has no name: it is gone
/// when the last reader is, however the process ends.
class Spool {
  public:
    /// Makes the file in `folder`, or in the system's temporary folder ($TMPDIR, /tmp) if that is
    /// "". Errors: E401.
    explicit Spool(const std::filesystem::path& folder);

    /// Appends bytes. Errors: E405, E402.
    void append(std::span<const std::byte> bytes);

    std::uint64_t bytes() const { return written_ + buffer_.size(); }

    /// Returns the appended bytes as a file.
    std::shared_ptr<const InputFile> finish();

  private:
    void flush();

    std::filesystem::path path_;
    UniqueFd fd_;
    std::vector<std::byte> buffer_;
    std::uint64_t written_ = 0;
};

}  // namespace lockstep
