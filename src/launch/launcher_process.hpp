// SPDX-License-Identifier: Apache-2.0
// An mpirun as a process: its state, its stdout, and its guaranteed end.
#pragma once

#include "lockstep/core/files.hpp"

#include <optional>
#include <string>
#include <vector>

#include <poll.h>
#include <sys/types.h>

namespace lockstep {

/// A started launcher. One thread.
class LauncherProcess {
  public:
    explicit LauncherProcess(pid_t pid) : pid_(pid) {}

    /// Returns true if it has ended; does not wait.
    bool has_ended();

    /// Returns its wait status, once it has ended.
    int status() const { return status_; }

    /// Sends a signal, which arrives even if the process is stopped.
    void send(int signal) const;

    /// Returns true if a process that it started still lives; nothing if the system does not tell.
    std::optional<bool> has_living_children() const;

  private:
    pid_t pid_;
    int status_ = 0;
    bool has_ended_ = false;
};

/// During its lifetime, processes that lose their parent become children of this one (a child
/// subreaper); at its end the new ones are killed. Otherwise ranks that a killed launcher leaves in
/// their first moments would live on.
class OrphanWatch {
  public:
    OrphanWatch();
    ~OrphanWatch();
    OrphanWatch(const OrphanWatch&) = delete;
    OrphanWatch& operator=(const OrphanWatch&) = delete;

  private:
    std::vector<pid_t> before_;
    int subreaper_before_ = 0;
};

/// The read end of a launcher's stdout. Output is passed on to this process's own stdout, and
/// dropped once nobody reads that: a launcher crashes if its own stdout is closed. Never waits.
/// Needs a process that ignores SIGPIPE. One thread.
class LauncherStdout {
  public:
    explicit LauncherStdout(UniqueFd pipe);

    /// Returns the argument for poll(): the events that move() handles.
    pollfd awaited() const;

    /// Reads what has come and passes on what has room.
    void move();

    /// Returns true if move() has work left.
    bool has_more() const;

    /// Returns true once: when nobody reads this process's stdout any more.
    bool has_just_lost_reader();

  private:
    UniqueFd pipe_;
    std::string unsent_;  // read, and not passed on yet
    bool is_unread_ = false, is_told_ = false;
};

}  // namespace lockstep
