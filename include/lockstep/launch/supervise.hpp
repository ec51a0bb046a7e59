// SPDX-License-Identifier: Apache-2.0
/// @file
/// Supervises an mpirun that this process starts: forwards signals to all ranks, and always ends
/// and cleans up.
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

/// What an exit code of mpirun's own means, as a sentence; "" if it is none.
std::string_view launcher_code(int code);

/// What else a code above 128 means that Open MPI 4.1 gives before ranks begin: "a host has no such
/// program". "" if it only stands for a signal.
std::string_view launch_fault(int code);

/// After how long a launcher that does not get on by itself is ended.
struct SupervisionLimits {
    double begin_s = 600;   ///< its ranks have not begun
    double gone_s = 30;     ///< none of its ranks lives
    double end_s = 5;       ///< from TERM to KILL
    double given_up_s = 4;  ///< ranks elsewhere have given up
};

/// When a place for a launcher's words is asked for.
enum class LaunchState { going_on, over };

/// The place where stderr of a launcher and its ranks is also kept.
struct LauncherLog {
    std::int64_t start = 0;  ///< which start of the run its ranks begin

    /// The folder of that start's logs; "" if there is none (yet). Without it nothing is kept.
    std::function<std::filesystem::path(LaunchState)> folder;
};

/// What is known of the ranks of a launch.
struct SupervisedRanks {
    /// Whether all ranks take signals, and have something to lose. Ranks of a launch without it
    /// have nothing to save: signals end them.
    std::function<bool()> have_begun;

    /// Whether one of them has said why all end. A launcher of ranks elsewhere is killed then: it
    /// waits long for hosts that it does not hear, and may crash at a TERM meanwhile.
    std::function<bool()> have_given_up = {};

    /// They are the launcher's own children; of others less is seen.
    bool are_here = true;

    SupervisionLimits limits = {};
    LauncherLog log = {};  ///< of their launcher

    /// What the same command does after an end without a word, as a sentence for users. Without:
    /// nothing is resumed.
    std::function<std::string()> tell_next_start = {};

    /// Called after a signal came before the ranks had begun, and has ended them; meanwhile they
    /// may have begun. Says what became of their work. Gets the usual exit code for this, and
    /// returns the true one.
    std::function<int(ExitCode usual)> tell_early_end = {};
};

/// Runs `argv` (an mpirun) with this process's output, through pipes, and waits. USR1, USR2, TERM
/// and HUP are passed on as USR2, which mpirun gives to every rank at once (its own way with TERM
/// leaves them a second); INT as well, and a second INT ends all. If nothing reads this process's
/// stdout any more, ranks that save go on, and others are ended: 128 + SIGPIPE. Before the ranks
/// have begun there is nothing to save: the launcher is ended. The same if its ranks are gone,
/// or do not begin. The child and whatever it leaves behind die with this process, and with this
/// call. Returns the ranks' exit code; 75 (or what `tell_early_end` says) after a signal before
/// they began, 128 + signal for those that save nothing, 130 after INT. Errors: E612 if they were
/// killed; E610; E691.
int supervise(const std::vector<std::string>& argv,
              const std::map<std::string, std::string>& environment,
              const SupervisedRanks& ranks = {});

/// supervise() of the mpirun line for `request`, with a LaunchFolder of its own; ranks learn
/// whether this process has a terminal, and `ranks.are_here` follows from `request`. Errors: E693
/// for a limit of this process that would stop them; mpirun_line()'s, LaunchFolder's and
/// supervise()'s.
int supervise_ranks(LaunchRequest request, SupervisedRanks ranks = {});

}  // namespace lockstep
