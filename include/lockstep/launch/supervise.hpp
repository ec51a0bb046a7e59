// SPDX-License-Identifier: Apache-2.0
/// @file
/// Supervises an mpirun that this process starts: forwards signals to all ranks, and always ends
/// them and cleans up.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/launch/mpirun.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Folder for Open MPI's session and segments, which would otherwise survive a killed mpirun. It is
/// in /dev/shm, or in the temporary folder if that has too little room. The destructor removes it;
/// folders of killed launchers are removed by the next one.
class LaunchFolder {
  public:
    /// Makes the folder for `ranks` on this node. Errors: E632 if neither place has room.
    explicit LaunchFolder(int ranks);
    ~LaunchFolder();
    LaunchFolder& operator=(LaunchFolder&&) = delete;

    /// Returns the path for mpirun; the folder is empty at first.
    const fs::path& path() const { return path_; }

  private:
    fs::path path_;
    UniqueFd lock_;
};

/// Returns the meaning of mpirun's own exit codes as a sentence; "" for other codes.
std::string_view launcher_code(int code);

/// Returns the second meaning of a code above 128 that Open MPI 4.1 gives before ranks begin: "a
/// host has no such program". "" if it only stands for a signal.
std::string_view launch_fault(int code);

/// Time limits after which a stuck launcher is ended.
struct SupervisionLimits {
    double begin_s = 600;   ///< its ranks have not begun
    double gone_s = 30;     ///< none of its ranks is alive
    double end_s = 5;       ///< from TERM to KILL
    double given_up_s = 4;  ///< ranks on other machines have failed
};

/// State of a launch when the folder for its launcher's output is asked for.
enum class LaunchState { going_on, over };

/// Copy of the stderr of a launcher and its ranks.
struct LauncherLog {
    std::int64_t start = 0;  ///< number of the run's start that the ranks belong to

    /// Returns the folder of that start's logs; "" if there is none, and no copy is kept.
    std::function<fs::path(LaunchState)> folder;
};

/// Facts about the ranks of a launch.
struct SupervisedRanks {
    /// Returns true once all ranks handle signals and have progress to save. Ranks of a launch
    /// without it have nothing to save: signals end them.
    std::function<bool()> have_begun;

    /// Returns true if a rank has reported why all end. A launcher of ranks on other machines is
    /// killed then: it waits long for silent hosts, and may crash if it gets a TERM in that time.
    std::function<bool()> have_given_up = {};

    /// true if they are the launcher's own children; less is known about others
    bool are_here = true;

    SupervisionLimits limits = {};
    LauncherLog log = {};  ///< log of their launcher

    /// Returns a sentence for users: what the same command does after an end without an error
    /// message. Without it, nothing is resumed.
    std::function<std::string()> tell_next_start = {};

    /// Called after a signal ended the ranks before they were known to have begun (they may have
    /// begun in the meantime), and after ranks here were killed following an INT. Reports what
    /// became of their work. Gets the usual exit code for this case, and returns the true one.
    std::function<int(ExitCode usual)> tell_early_end = {};
};

/// Runs `argv` (an mpirun), passes its output through pipes, and waits. USR1, USR2, TERM and HUP
/// are passed on as USR2, which mpirun gives to every rank at once (mpirun's own handling of TERM
/// leaves them a second). INT as well, and an INT a second or more after the first ends all. If
/// nothing reads this process's stdout any more, ranks that save go on, and others are ended: 128 +
/// SIGPIPE. A signal before the ranks have begun ends the launcher, because there is nothing to
/// save. The launcher is also ended if its ranks are gone or do not begin. The child and its
/// descendants die with this process, and when this call returns. Returns the ranks' exit code; 75
/// (or the result of `tell_early_end`) after a signal before they began, 128 + signal for ranks
/// that save nothing, 130 (or that result) after INT. Errors: E612 if they were killed; E610; E691.
int supervise(const std::vector<std::string>& argv,
              const std::map<std::string, std::string>& environment,
              const SupervisedRanks& ranks = {});

/// Calls supervise() with the mpirun line for `request` and its own LaunchFolder. Ranks learn
/// whether this process has a terminal, and `ranks.are_here` follows from `request`. Errors: E693
/// for a limit of this process that would stop them; those of mpirun_line(), LaunchFolder and
/// supervise().
int supervise_ranks(LaunchRequest request, SupervisedRanks ranks = {});

}  // namespace lockstep
