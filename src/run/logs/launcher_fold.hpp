// SPDX-License-Identifier: Apache-2.0
// Reduces a launcher's output to the lines that matter.
#pragma once

#include "lockstep/core/log.hpp"

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// A line, with the texts of LogLine.
struct LauncherLine {
    double time_s = 0;
    Level level = Level::warn;
    std::string text{}, alike{}, code{}, why{};
};

/// Takes a launcher's lines one by one. A box of Open MPI becomes one line, and so does a rank's
/// error with its reasons; empty lines are dropped. Lines that only report an end that others
/// explain have level info, unknown ones warning.
class LauncherFold {
  public:
    void add(double time_s, std::string_view text);

    /// Emits a line or box that is incomplete.
    void finish();

    /// Returns the next finished line.
    std::optional<LauncherLine> take();

  private:
    void close_box();
    void close_error();
    bool continues_error(std::string_view text);

    std::deque<LauncherLine> ready_;
    std::vector<std::string> box_;  // its lines so far, from its first rule on
    double box_s_ = 0;
    std::optional<LauncherLine> error_;
};

}  // namespace lockstep
