// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a SLURM job does when its ranks have ended: end, requeue, or give up.
#pragma once

#include "lockstep/core/environment.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// The content of the run's state file, as the launcher's exit code is not reliable.
enum class RunEnd {
    unknown,    ///< no state: no start has begun it
    not_begun,  ///< that of an earlier start: this one never held the run
    running,
    saved,
    interrupted,
    complete,
    failed
};

/// What a rank said as it failed. A launcher ends the others by signals, and may return theirs.
struct RankEnd {
    std::string who{};    ///< "rank 1 on node2"
    int exit = 0;         ///< its own exit code
    std::string error{};  ///< "E306: ..."
};

/// The job as its batch script sees it.
struct SlurmJob {
    std::string id;             ///< "4711", for an array's task "4711_3": what scontrol requeues
    std::string node_list;      ///< "node[1-2]", as SLURM folds it
    std::int64_t restarts = 0;  ///< how often SLURM has started it again
};

/// Errors: E520 outside a job; E113 if a variable is no number.
SlurmJob read_slurm_job(const Environment& environment);

/// Everything that the decision rests on.
struct JobEnd {
    int launcher_exit = 0;              ///< of mpirun or srun; 128 + signal when killed
    RunEnd run = RunEnd::unknown;       ///< of this start
    int failure_exit = 0;               ///< the state file's, if it says failed
    std::vector<RankEnd> rank_ends{};   ///< of this start, in the order of ranks
    std::int64_t restarts = 0;          ///< of the job so far
    std::int64_t idle_starts = 0;       ///< starts in a row, this one too, without a new checkpoint
    std::string job_state = "RUNNING";  ///< SLURM's word; others are ending the job already
    bool is_newest_start = true;        ///< false: SLURM has lost this one and begun another
};

/// When enough is enough.
struct RequeueLimits {
    std::int64_t restarts = 20;    ///< of one job
    std::int64_t idle_starts = 3;  ///< in a row, without a new checkpoint
};

/// The decision, and why, in words for the job's output.
struct RequeueVerdict {
    bool requeues = false;
    int exit_code = 0;  ///< of the batch script, if it does not requeue or cannot
    std::string reason;
};

/// Pure. Requeues a job that a lost node, a limit or a preemption ended, also before the run began,
/// but not if it would fail again: exit codes 64 to 74, 77, 78 and 130 stay; 93 without progress.
/// A start that SLURM no longer knows decides nothing: the job belongs to a later start.
RequeueVerdict judge_job_end(const JobEnd& end, const RequeueLimits& limits);

/// Before the ranks of a job are started: a job that SLURM itself starts again and again, after
/// lost nodes, never comes to judge_job_end(). `idle_starts`: those before this one. One that was
/// submitted again is always started. Errors: E541 (exit code 93).
void check_start(std::int64_t restarts, std::int64_t idle_starts, const RequeueLimits& limits);

}  // namespace lockstep
