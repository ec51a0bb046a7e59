// SPDX-License-Identifier: Apache-2.0
/// @file
/// Watching over an mpirun of our own: signals reach all ranks, nothing is left behind.
#pragma once

#include "lockstep/core/files.hpp"
#include "lockstep/launch/mpirun.hpp"

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

/// A folder in memory for one launch, for Open MPI's session and segments: they survive a killed
/// mpirun otherwise. Gone at the end; folders of launchers that were killed are removed by the
/// next.
class LaunchFolder {
  public:
    LaunchFolder();
    ~LaunchFolder();
    LaunchFolder(const LaunchFolder&) = delete;
    LaunchFolder& operator=(const LaunchFolder&) = delete;

    /// Empty at first; mpirun is told of it.
    const std::filesystem::path& path() const { return path_; }

  private:
    std::filesystem::path path_;
    UniqueFd lock_;
};

/// Runs `argv` (an mpirun) with this process's output and waits. USR1, USR2 and TERM are passed on
/// as USR2, which mpirun gives to every rank at once (its own way with TERM leaves them a second);
/// INT as well, and a second INT ends all. The child dies with this process.
/// Returns the ranks' exit code, 130 after INT. Errors: E612 if they were killed; E610.
int supervise(const std::vector<std::string>& argv,
              const std::map<std::string, std::string>& environment);

/// supervise() of the mpirun line for `request`, with a LaunchFolder of its own; ranks learn
/// whether this process has a terminal. Errors: mpirun_line()'s and supervise()'s.
int supervise_ranks(LaunchRequest request);

}  // namespace lockstep
