// SPDX-License-Identifier: Apache-2.0
// What a launcher writes to its stdout, passed on as long as somebody reads it.
#pragma once

#include "lockstep/core/files.hpp"

#include <string>

#include <poll.h>

namespace lockstep {

/// The read end of a launcher's stdout. What comes is passed on to this process's own, and dropped
/// once nobody reads that: a launcher whose own stdout were closed would crash. Never waits. Wants
/// a process that ignores SIGPIPE. One thread.
class LauncherStdout {
  public:
    explicit LauncherStdout(UniqueFd pipe);

    /// For poll(): what move() can do something about.
    pollfd awaited() const;

    /// Takes what has come and passes on what has room.
    void move();

    /// Whether there is something that move() has not done yet.
    bool has_more() const;

    /// True once: when nobody reads this process's stdout any more.
    bool has_just_lost_reader();

  private:
    UniqueFd pipe_;
    std::string unsent_;  // taken, and not passed on yet
    bool is_unread_ = false, is_told_ = false;
};

}  // namespace lockstep
