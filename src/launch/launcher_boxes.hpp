// SPDX-License-Identifier: Apache-2.0
// What a person sees of Open MPI's boxes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// A launcher's stderr without the rules and empty lines of Open MPI's boxes, and without those
/// boxes and lines that only tell of an end that others explain. All else passes as it comes, a
/// beginning of a line at once.
class LauncherBoxes {
  public:
    /// What is to be shown once `bytes` have come.
    std::string pass(std::string_view bytes);

    /// What is kept back, if nothing more comes for a while: a box that has no end is none.
    std::string rest();

  private:
    void take(char c, std::string& shown);
    void end_line(std::string& shown);

    std::string line_;              // a beginning that may be a box's or noise
    std::vector<std::string> box_;  // its lines so far, from its first rule on
    bool is_shown_ = false;         // the beginning of the line that comes now
};

}  // namespace lockstep
