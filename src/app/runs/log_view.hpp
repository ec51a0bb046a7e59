// SPDX-License-Identifier: Apache-2.0
// Showing merged logs, to their end or as they grow.
#pragma once

#include "lockstep/run/log_text.hpp"
#include "lockstep/run/run_status.hpp"

#include <cstdint>
#include <functional>
#include <string>

namespace lockstep {

/// Text on its way to stdout, in large pieces.
class Output {
  public:
    std::string& text() { return text_; }  ///< to append to

    /// Writes what has come together, if it is enough for a piece.
    void pass() {
        if (text_.size() >= piece_bytes) flush();
    }

    /// A reader that went away, as `head`, is no error. Errors: E405, E402.
    void flush();

    bool is_closed() const { return is_closed_; }  ///< nobody reads it any more

  private:
    static constexpr std::size_t piece_bytes = 64 << 10;
    std::string text_;
    bool is_closed_ = false;
};

/// Whether stdout is to be coloured: a terminal that can, and NO_COLOR (https://no-color.org) is
/// not set.
Colours colours_of_stdout();

/// What is shown of a start's logs, and how.
struct LogView {
    LogChoice choice{};
    LogStyle style{};
    int diff_rank = -1;  ///< not negative: only lines by which that rank differs from the others
    bool is_json = false;
    bool is_over = false;  ///< that start: nothing more will come
};

/// A rank's difference from the others looks at lines so far apart, and at so many.
inline constexpr FoldLimits diff_limits{
    .window_s = 60, .most_lines = std::size_t{64} << 10, .most_bytes = std::size_t{64} << 20};

/// Shows the logs in `folder` as they are now.
std::uint64_t show_logs(const fs::path& folder, const LogView& view, Output& out);

/// Shows them, and what comes, until `is_over` says that nothing will, or a signal asks to stop.
/// `is_over` is asked about once a second.
std::uint64_t follow_logs(const fs::path& folder,
                          const LogView& view,
                          const std::function<bool()>& is_over,
                          Output& out);

}  // namespace lockstep
