// SPDX-License-Identifier: Apache-2.0
/// @file
/// A folder in memory for the files of one launch.
#pragma once

#include "lockstep/core/files.hpp"

#include <filesystem>

namespace lockstep {

/// For Open MPI's session and segments, which survive a killed mpirun otherwise. In /dev/shm, or
/// among temporary files if that has too little room. Gone at the end; folders of launchers that
/// were killed are removed by the next.
class LaunchFolder {
  public:
    /// For `ranks` on this node. Errors: E632 if neither place has room.
    explicit LaunchFolder(int ranks);
    ~LaunchFolder();
    LaunchFolder(const LaunchFolder&) = delete;
    LaunchFolder& operator=(const LaunchFolder&) = delete;

    /// Empty at first; mpirun gets its path.
    const std::filesystem::path& path() const { return path_; }

  private:
    std::filesystem::path path_;
    UniqueFd lock_;
};

}  // namespace lockstep
