// SPDX-License-Identifier: Apache-2.0
// What a launcher says, in as many lines as it deserves.
#pragma once

#include "lockstep/core/log.hpp"

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// As LogLine has it.
struct LauncherLine {
    double time_s = 0;
    Level level = Level::warn;
    std::string text{}, alike{}, code{}, why{};
};

/// Takes a launcher's lines one by one. A box of Open MPI's becomes one line, and so does an error
/// of a rank's with its reasons; empty lines go. What only tells of an end that others explain is
/// of level info, what nobody knows a warning.
class LauncherFold {
  public:
    void add(double time_s, std::string_view text);

    /// Gives on what was begun and is not whole.
    void finish();

    /// The next that is ready.
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
