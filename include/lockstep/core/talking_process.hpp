// SPDX-License-Identifier: Apache-2.0
/// @file
/// A child process that answers line by line.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// A child process and the pipes to it. Move-only; the destructor kills the child. Null state:
/// moved from.
class TalkingProcess {
  public:
    /// Starts argv[0] (found on PATH). Errors: E610.
    explicit TalkingProcess(const std::vector<std::string>& argv);

    /// Moves ownership of the child.
    TalkingProcess(TalkingProcess&&) noexcept;
    ~TalkingProcess();

    /// Writes a line to its stdin. Writing to a child that is gone is no error.
    void say(const std::string& line);

    /// Returns the next line of its stdout or stderr without line feed. Returns nothing if none
    /// comes before `deadline_s` (of now_s()) or the child has closed both.
    std::optional<std::string> hear(double deadline_s);

  private:
    struct Inside;
    std::unique_ptr<Inside> inside_;
};

}  // namespace lockstep
