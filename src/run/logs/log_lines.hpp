// SPDX-License-Identifier: Apache-2.0
// Lines of a run's file, which may be anything: growing, a pipe, endless, or one line of gigabytes.
#pragma once

#include "lockstep/core/files.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace lockstep {

/// Whether a file's last line counts where it has no end: its writer may be at it.
enum class UnendedLine { is_given, is_awaited };

/// How lines are read.
struct LineLimits {
    std::size_t piece_bytes = std::size_t{64} << 10;
    std::size_t longest_line = std::size_t{1} << 20;  ///< longer ones are passed over
    bool stays_open = true;                           ///< else it is opened for each piece
    UnendedLine last = UnendedLine::is_given;
};

/// A file of which lines are read. One that is not there (yet) has none.
class LogLines {
  public:
    explicit LogLines(fs::path path, const LineLimits& limits = {});

    /// Bytes of the file now. Errors: those of open_for_reading() but E201.
    std::int64_t size();

    /// What next() gives from now on: the lines that begin at or after byte `from` and before byte
    /// `to`. A line that began before `from` counts as beginning there, and is left out.
    void choose(std::int64_t from, std::int64_t to = std::numeric_limits<std::int64_t>::max());

    /// All that begin in the last `bytes`.
    void choose_last(std::int64_t bytes);

    /// The next line, without its end, until the next call. After nothing, another call may find
    /// more. Errors: those of open_for_reading() but E201; E402.
    std::optional<std::string_view> next();

    /// Fills `into` from byte `offset`; returns how much there is. Errors: as of next().
    std::size_t read_from(std::int64_t offset, std::span<char> into);

    const fs::path& path() const { return path_; }
    std::uint64_t passed_over() const { return passed_over_; }  ///< lines that are too long

  private:
    UniqueFd open() const;
    bool fill();
    void leave_endless_line();
    std::optional<std::string_view> unended();

    fs::path path_;
    LineLimits limits_;
    UniqueFd fd_;
    std::vector<char> buffer_;
    std::size_t begin_ = 0, end_ = 0;  // of what was read and not given, in the buffer
    std::size_t searched_ = 0;         // up to here no line ends
    std::int64_t offset_ = 0;          // in the file, of end_
    std::int64_t to_ = std::numeric_limits<std::int64_t>::max();
    std::int64_t line_at_ = 0;  // in the file, of the line that is skipped
    bool skips_line_ = false;   // until the end of one that is too long, or began too early
    std::uint64_t passed_over_ = 0;
};

}  // namespace lockstep
