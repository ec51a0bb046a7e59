// SPDX-License-Identifier: Apache-2.0
// An mpirun as a process: its state, its stdout, and its certain end.
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

    /// Whether it has ended; does not wait.
    bool has_ended();

    /// Its wait status, once it has ended.
    int status() const { return status_; }

    /// Reaches it even if it is stopped.
    void send(int signal) const;

    /// Whether a process that it started still lives; nothing where the system does not say.
    std::optional<bool> has_living_children() const;

  private:
    pid_t pid_;
    int status_ = 0;
    bool has_ended_ = false;
};

/// For its lifetime, processes that lose their parent become children of this one (a child
/// subreaper); at its end those that are new are killed. Ranks that a killed launcher leaves in
/// their first moments would live on otherwise.
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
