// SPDX-License-Identifier: Apache-2.0
/// @file
/// Lines of merged logs as people read them.
#pragma once

#include "lockstep/run/log_fold.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

/// Whether terminals colour what is shown.
enum class Colours { off, on };

/// How lines are shown.
struct LogStyle {
    int ranks = 1;                   ///< in all
    bool names_hosts = false;        ///< of lines of one rank
    Colours colours = Colours::off;  ///< warnings, errors, and what is less important
};

/// `text` on one line, without escapes of terminals and other control characters.
std::string plain_text(std::string_view text);

/// "2026-01-31T12:34:56.789Z [0-7]  warn  ...": lines as text. One thread.
class LogText {
  public:
    /// For lines of one start, whose columns fit its ranks.
    explicit LogText(const LogStyle& style);

    /// `line` and a line feed, behind what `out` holds; before it `mark`, as of a comparison.
    void append(std::string& out, const FoldedLine& line, std::string_view mark = {});

  private:
    void append_time(std::string& out, double time_s);
    std::string ranks_label(const FoldedLine& line) const;

    LogStyle style_;
    std::size_t label_width_;
    std::int64_t second_ = -1;
    std::string second_text_;  // "2026-01-31T12:34:56."
};

}  // namespace lockstep
