// SPDX-License-Identifier: Apache-2.0
/// @file
/// The decision of a SLURM job after its ranks have ended: end, requeue, or give up.
#pragma once

#include "lockstep/core/environment.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// The content of the run's state file, read because the launcher's exit code is unreliable.
enum class RunEnd {
    unknown,    ///< no state: no start has begun the run
    not_begun,  ///< state of an earlier start: this one never held the run
    running,
    saved,
    interrupted,
    complete,
    failed
};

/// The error that a rank wrote when it failed. A launcher ends the other ranks by signals, and may
/// return their codes.
struct RankEnd {
    std::string who{};    ///< "rank 1 on node2"
    int exit = 0;         ///< its own exit code
    std::string error{};  ///< "E306: ..."
};

/// The job as its batch script sees it.
struct SlurmJob {
    std::string id;         ///< number for scontrol requeue: "4711", for an array's task "4711_3"
    std::string node_list;  ///< in SLURM's folded form: "node[1-2]"
    std::int64_t restarts = 0;  ///< number of restarts by SLURM
};

/// Reads the job's variables. Errors: E520 outside a job; E113 if a variable is no number.
SlurmJob read_slurm_job(const Environment& environment);

/// All facts on which the decision depends.
struct JobEnd {
    int launcher_exit = 0;             ///< code of mpirun or srun; 128 + signal when killed
    RunEnd run = RunEnd::unknown;      ///< state of this start
    int failure_exit = 0;              ///< code in the state file, if it says failed
    std::vector<RankEnd> rank_ends{};  ///< from this start, in the order of ranks
    std::int64_t restarts = 0;         ///< restarts of the job so far
    std::int64_t idle_starts =
        0;  ///< starts in a row, including this one, without a new checkpoint
    std::string job_state =
        "RUNNING";  ///< SLURM's state of the job; in other states the job is already ending
    bool is_newest_start = true;  ///< false: SLURM has lost this start and begun another
};

/// Limits of automatic restarts.
struct RequeueLimits {
    std::int64_t restarts = 20;    ///< restarts of one job
    std::int64_t idle_starts = 3;  ///< starts in a row without a new checkpoint
};

/// The decision and its reason, in words for the job's output.
struct RequeueVerdict {
    bool requeues = false;
    int exit_code = 0;  ///< code of the batch script, if it does not requeue or cannot
    std::string reason;
};

/// Pure. Requeues a job that a lost node, a limit or a preemption ended, even before the run began,
/// but not if it would fail again: exit codes 64 to 74, 77, 78 and 130 are final; 93 without
/// progress. A start that SLURM no longer knows decides nothing: the job belongs to a later start.
RequeueVerdict judge_job_end(const JobEnd& end, const RequeueLimits& limits);

/// Checks the limits before the ranks of a job are started: a job that SLURM itself starts again
/// and again, after lost nodes, never reaches judge_job_end(). `idle_starts`: those before this
/// one. A job that was submitted again is always started. Errors: E541 (exit code 93).
void check_start(std::int64_t restarts, std::int64_t idle_starts, const RequeueLimits& limits);

}  // namespace lockstep
