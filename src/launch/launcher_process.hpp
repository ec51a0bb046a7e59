// SPDX-License-Identifier: Apache-2.0
// An mpirun as a process: its state, its output, and its guaranteed end.
#pragma once

#include "lockstep/core/files.hpp"

#include <functional>
#include <optional>
#include <string>
#include <string_view>
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

/// Returns true if `fd` has one of poll()'s `events` now.
bool is_ready(int fd, short events);

/// The read end of a launcher's stdout or stderr. Output is passed on to `target`, the same of this
/// process, in pieces that a pipe or terminal accepts at once, and dropped once nobody reads that:
/// a launcher crashes if its own stdout is closed. If `target` accepts no more, the launcher's pipe
/// fills up as if it led there directly. Never waits. Needs a process that ignores SIGPIPE. One
/// thread.
class PassedPipe {
  public:
    /// What is passed on in place of what has come.
    using Change = std::function<std::string(std::string_view)>;

    /// `pipe` may be null: there is no output.
    PassedPipe(
        UniqueFd pipe, int target, Change change = [](auto come) { return std::string(come); });

    /// Returns the argument for poll(): the events that move() handles.
    pollfd awaited() const;

    /// Reads what has come and passes on what has room.
    void move();

    /// Passes on `text`, too, if all that came before has been.
    void add(const std::function<std::string()>& text);

    /// Returns true if move() has work left.
    bool has_more() const;

    /// Returns true once: when nobody reads `target` any more.
    bool has_just_lost_reader();

  private:
    UniqueFd pipe_;
    int target_;
    Change change_;
    std::string unsent_;  // read, and not passed on yet
    bool is_unread_ = false, is_told_ = false;
};

}  // namespace lockstep
