// SPDX-License-Identifier: Apache-2.0
// Reads lines of a run's file, which may be growing, a pipe, endless, or one line of gigabytes.
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

/// Treatment of a last line without an end, which its writer may still be writing.
enum class UnendedLine { is_given, is_awaited };

struct LineLimits {
    std::size_t piece_bytes = std::size_t{64} << 10;
    std::size_t longest_line = std::size_t{1} << 20;  ///< longer lines are skipped
    bool stays_open = true;                           ///< else it is opened again for each piece
    UnendedLine last = UnendedLine::is_given;
};

/// A file from which lines are read. A missing file has no lines (yet).
class LogLines {
  public:
    explicit LogLines(fs::path path, const LineLimits& limits = {});

    /// Returns the present size of the file. Errors: those of open_for_reading() but E201.
    std::int64_t size();

    /// Selects the lines that begin at or after byte `from` and before byte `to`. A line that began
    /// before `from` is left out.
    void choose(std::int64_t from, std::int64_t to = std::numeric_limits<std::int64_t>::max());

    /// Selects all lines that begin in the last `bytes`.
    void choose_last(std::int64_t bytes) { choose(size() - bytes); }

    /// Returns the next line, without its end; valid until the next call. After nothing, another
    /// call may find more. Errors: those of open_for_reading() but E201; E402.
    std::optional<std::string_view> next();

    /// Fills `into` from byte `offset`; returns the number of bytes. Errors: as next().
    std::size_t read_from(std::int64_t offset, std::span<char> into);

    const fs::path& path() const { return path_; }
    /// Returns the number of lines that are too long.
    std::uint64_t passed_over() const { return passed_over_; }

  private:
    UniqueFd open() const;
    bool fill();
    void leave_endless_line();
    std::optional<std::string_view> unended();

    fs::path path_;
    LineLimits limits_;
    UniqueFd fd_;
    std::vector<char> buffer_;
    std::size_t begin_ = 0, end_ = 0;  // unread part of the buffer
    std::size_t searched_ = 0;         // no line ends before this place
    std::int64_t offset_ = 0;          // file offset of end_
    std::int64_t to_ = std::numeric_limits<std::int64_t>::max();
    std::int64_t line_at_ = 0;  // file offset of the skipped line
    bool skips_line_ = false;   // skips a line that is too long, or began too early
    std::uint64_t passed_over_ = 0;
};

}  // namespace lockstep
