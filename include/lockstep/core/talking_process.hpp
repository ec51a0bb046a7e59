// SPDX-License-Identifier: Apache-2.0
/// @file
/// A child process that answers line by line.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// A child process and the pipes to it. Move-only; the child is killed when this goes. Null state:
/// moved from.
class TalkingProcess {
  public:
    /// Starts argv[0] (found on PATH). Errors: E610.
    explicit TalkingProcess(const std::vector<std::string>& argv);

    /// Moves the child along.
    TalkingProcess(TalkingProcess&&) noexcept;
    ~TalkingProcess();

    /// Writes a line to its stdin. A child that is gone takes it as well as any.
    void say(const std::string& line);

    /// The next line of its stdout or stderr without line feed; nothing if none comes before
    /// `deadline_s` (of now_s()) or the child has closed both.
    std::optional<std::string> hear(double deadline_s);

  private:
    struct Inside;
    std::unique_ptr<Inside> inside_;
};

}  // namespace lockstep
