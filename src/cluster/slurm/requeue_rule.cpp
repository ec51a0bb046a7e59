// SPDX-License-Identifier: Apache-2.0
// Decides what a batch script does after its ranks have ended. mpirun's exit code does not decide
// it, because it is 0 when a remote daemon dies. Nor does srun's, which is the largest code of a
// rank: 143 if it ended others for one that failed. The run's own state file decides, if this start
// wrote it; then the errors that ranks wrote when they failed; and the launcher's code only if
// there is nothing else:
//
//     state of the run    rank's, failure's, launcher's code  then
//     complete            any                                 done, 0
//     saved               any                                 requeue (75)
//     interrupted         any                                 stop, 130: somebody meant it
//     failed, running     0, 1, 75, 76, above 130: the world  requeue (76)
//                         any other: a mistake                stop with that code: again in vain
//     none of this start  0, 76, above 130: the world         requeue (76)
//                         any other: a mistake                stop with that code
//
// Each "requeue" also requires that starts bring new checkpoints and are not too many (once_more).
//
// What must never happen:
// - A start that never held the run takes an earlier one's success for its own.
// - A job that fails at once requeues itself for ever: it would spend an allocation in a night.
// - A run that a lost node ended stays ended.
// - Two starts of a job go on with one run: a start that SLURM has given up decides nothing.
// - A job that is being cancelled is requeued: its SLURM state is asked first.
//
// Tested: cluster/slurm/requeue_rule_test.cpp, by rows of this table; cluster/life_test and
// cluster/epilog_test on a real SLURM.

#include "lockstep/cluster/requeue_rule.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr int saved = static_cast<int>(ExitCode::saved_please_requeue);
constexpr int lost = static_cast<int>(ExitCode::peer_lost);

// Returns true for external causes, which another start may overcome.
bool may_mend(int exit_code) {
    return exit_code == 0 || exit_code == 1 || exit_code == saved || exit_code == lost ||
           exit_code > 130;
}

RequeueVerdict stop(int exit_code, std::string reason) {
    return {false, exit_code, std::move(reason)};
}

RequeueVerdict once_more(const JobEnd& end,
                         const RequeueLimits& limits,
                         int exit_code,
                         const std::string& reason) {
    constexpr int never = static_cast<int>(ExitCode::do_not_requeue);
    if (end.job_state != "RUNNING")
        return stop(exit_code,
                    fmt::format("{}; SLURM is ending the job already ({})", reason, end.job_state));
    if (end.idle_starts >= limits.idle_starts)
        return stop(
            never,
            fmt::format(
                "{}, but {} starts in a row brought no new checkpoint", reason, end.idle_starts));
    if (end.restarts >= limits.restarts)
        return stop(
            never,
            fmt::format("{}, but SLURM has started this job {} times", reason, end.restarts + 1));
    return {true, exit_code, reason};
}

// Ranks that were lost while they started have not said why, as a mistake of the user's has. Where
// no start has begun the run, they are counted instead of its checkpoints.
RequeueVerdict judge_start(JobEnd end, const RequeueLimits& limits) {
    const int exit_code = end.launcher_exit;
    constexpr int not_loadable = 126, not_found = 127;  // codes of the shell and the loader
    if (exit_code == not_loadable || exit_code == not_found)
        return stop(exit_code,
                    "the run did not begin: a node could not load the program or one of its "
                    "libraries, which the words above name");
    if (exit_code != 0 && exit_code != lost && exit_code <= 130)
        return stop(exit_code, "the run did not begin");
    if (end.run == RunEnd::unknown) end.idle_starts = end.restarts + 1;
    return once_more(
        end,
        limits,
        lost,
        fmt::format("the ranks were gone before the run began (the launcher says {})", exit_code));
}

// Another job has the run, or something that the job needs is away: another start may go on.
std::string_view outlook(int exit_code) {
    return exit_code == static_cast<int>(ExitCode::service_away)
               ? "failed; submit the job again when the cause has ended"
               : "failed, and would again";
}

// Judges a start whose run is neither complete nor saved.
RequeueVerdict judge_failure(JobEnd end, const RequeueLimits& limits) {
    // One of several ranks may have seen no more than the loss of another.
    const auto failure = std::ranges::find_if(
        end.rank_ends, [](const RankEnd& each) { return !may_mend(each.exit); });
    if (failure != end.rank_ends.end())
        return stop(failure->exit,
                    fmt::format("the ranks {}: {} ({})",
                                outlook(failure->exit),
                                printable(failure->error),
                                printable(failure->who)));
    if (!end.rank_ends.empty()) end.launcher_exit = lost;
    const bool says_why = end.run == RunEnd::failed;
    if (!says_why && end.run != RunEnd::running) return judge_start(end, limits);
    const int exit_code = says_why ? end.failure_exit : end.launcher_exit;
    if (!may_mend(exit_code)) return stop(exit_code, fmt::format("the run {}", outlook(exit_code)));
    return once_more(end,
                     limits,
                     lost,
                     says_why
                         ? "the run failed by the loss of a rank"
                         : fmt::format("the ranks are gone, but not done (the launcher says {})",
                                       end.launcher_exit));
}

}  // namespace

SlurmJob read_slurm_job(const Environment& environment) {
    const auto job = environment.integer("SLURM_JOB_ID");
    check(job.has_value(), [] {
        return Error("E520",
                     "this is not a SLURM job",
                     "SLURM_JOB_ID is not set",
                     "call it in a batch script, after mpirun or srun; see slurm/README.md");
    });
    SlurmJob facts;
    facts.id = fmt::format("{}", *job);
    const auto array = environment.integer("SLURM_ARRAY_JOB_ID");
    const auto task = environment.integer("SLURM_ARRAY_TASK_ID");
    if (array && task) facts.id = fmt::format("{}_{}", *array, *task);
    facts.node_list = environment.text("SLURM_JOB_NODELIST").value_or("");
    facts.restarts = environment.integer("SLURM_RESTART_COUNT").value_or(0);
    return facts;
}

RequeueVerdict judge_job_end(const JobEnd& end, const RequeueLimits& limits) {
    if (!end.is_newest_start)
        return stop(lost, "SLURM has begun a later start of this job, which continues the run");
    if (end.run == RunEnd::complete) return stop(0, "the run is complete");
    if (end.run == RunEnd::saved)
        return once_more(end, limits, saved, "the run is saved and not yet complete");
    if (end.run == RunEnd::interrupted)
        return stop(static_cast<int>(ExitCode::interrupted), "the run was interrupted");
    return judge_failure(end, limits);
}

void check_start(std::int64_t restarts, std::int64_t idle_starts, const RequeueLimits& limits) {
    if (restarts == 0) return;
    check(idle_starts < limits.idle_starts && restarts <= limits.restarts, [&] {
        return Error("E541",
                     fmt::format("SLURM has started this job {} times", restarts + 1),
                     idle_starts < limits.idle_starts
                         ? fmt::format("the limit is {} restarts", limits.restarts)
                         : fmt::format("the last {} brought no new checkpoint", idle_starts),
                     "find out why (the run's logs, 'lockstep diagnose', 'sacct' of the job), then "
                     "submit it again: the run goes on");
    });
}

}  // namespace lockstep
