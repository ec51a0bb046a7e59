// SPDX-License-Identifier: Apache-2.0
// An mpirun as a process: its state, and its certain end.
#pragma once

#include <optional>
#include <vector>

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

}  // namespace lockstep
