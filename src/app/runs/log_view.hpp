// SPDX-License-Identifier: Apache-2.0
// Shows merged logs, to their end or as they grow.
#pragma once

#include "lockstep/run/log_text.hpp"

#include <cstdint>
#include <functional>
#include <string>

namespace lockstep {

/// Text for stdout, written in large pieces.
struct Output {
    std::string text;        ///< what is not written yet
    bool is_closed = false;  ///< the reader closed it

    void pass();  ///< writes the text if it is enough for a piece

    /// Writes all text. A reader that closed the pipe is no error. Errors: E405, E402.
    void flush();
};

/// Returns whether stdout is coloured: a terminal that can, and NO_COLOR (https://no-color.org) is
/// not set.
Colours colours_of_stdout();

/// Selection and style of a start's logs.
struct LogView {
    LogChoice choice{};
    LogStyle style{};
    int diff_rank = -1;  ///< not negative: only lines by which that rank differs from the others
    bool is_json = false;
    bool is_over = false;  ///< the start is over: no more lines will come
};

std::uint64_t show_logs(const fs::path& folder, const LogView& view, Output& out);

/// Shows them, and later lines, until `is_over` returns that no more will come, or a signal asks to
/// stop. `is_over` is called once a second.
std::uint64_t follow_logs(const fs::path& folder,
                          const LogView& view,
                          const std::function<bool()>& is_over,
                          Output& out);

}  // namespace lockstep
