// SPDX-License-Identifier: Apache-2.0
// Lines of a run's file, which may be anything: a pipe, endless, or one line of gigabytes.
#pragma once

#include "lockstep/core/files.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

/// A file of which lines are read. One that is not there has none.
class RunLines {
  public:
    static constexpr std::int64_t longest_line = 1 << 20;  ///< longer ones are passed over

    /// Errors: those of open_for_reading() but E201.
    explicit RunLines(const fs::path& path);

    std::int64_t size() const { return size_; }  ///< when it was opened; it is read so far

    /// What next() gives from now on: the lines that begin at or after byte `from` and before byte
    /// `to`. A line that began before `from` counts as beginning there, and is left out.
    void choose(std::int64_t from, std::int64_t to);

    /// All that begin in the last `bytes`.
    void choose_last(std::int64_t bytes);

    /// The next line, without its end, until the next call; also the last one where it has no end.
    /// Errors: E402.
    std::optional<std::string_view> next();

  private:
    bool fill();

    fs::path path_;
    UniqueFd fd_;
    std::int64_t size_ = 0, to_ = 0;
    std::int64_t at_ = 0;  // of the file, where buffer_ ends
    std::string buffer_;   // what was read and not given yet begins at begin_
    std::size_t begin_ = 0;
    bool is_inside_ = false;  // a line that is left out
};

}  // namespace lockstep
