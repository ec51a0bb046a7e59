// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/requeue_rule.hpp"
#include "lockstep/core/control_group.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/process.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/run/verdict.hpp"

#include "command.hpp"
#include "option_groups.hpp"
#include "output_place.hpp"
#include "rank_ends.hpp"
#include "slurm/idle_starts.hpp"

#include <memory>
#include <sstream>

#include <fmt/format.h>
#include <unistd.h>

namespace lockstep {
namespace {

struct EpilogOptions {
    fs::path run;
    int launcher_exit = 0;
    fs::path rank_ends;
    RequeueLimits limits;
    bool dry_run = false;
};

RunEnd run_end(const std::optional<RunState>& state, const fs::path& run) {
    if (!state) return RunEnd::unknown;
    const std::int64_t before = incarnation_before_start(run);
    if (state->incarnation <= before)
        return read_incarnation(run) > before ? RunEnd::running : RunEnd::not_begun;
    switch (state->phase) {
        case RunPhase::running:
            return RunEnd::running;
        case RunPhase::complete:
            return RunEnd::complete;
        case RunPhase::failed:
            return RunEnd::failed;
        case RunPhase::checkpointed:
            break;
    }
    const bool by_hand = state->exit == static_cast<int>(ExitCode::interrupted);
    return by_hand ? RunEnd::interrupted : RunEnd::saved;
}

// A busy controller answers the second or third time.
ProcessResult slurm_answer(const std::vector<std::string>& argv) {
    ProcessResult answer;
    for (const unsigned pause_s : {0u, 2u, 10u}) {
        ::sleep(pause_s);
        answer = run_process(argv, {}, 60);
        if (answer.exit_code == 0) break;
    }
    return answer;
}

// SLURM's word for the job: while a cancelled job ends, its script still runs; and so it does on a
// node that SLURM has lost sight of, when the job has long begun again elsewhere.
void ask_about_job(const SlurmJob& job, JobEnd& end) {
    const auto answer =
        slurm_answer({"squeue", "-h", "-j", job.id, "-O", "State:32,RestartCnt:16"});
    check(answer.exit_code == 0, [&] {
        return Error("E511",
                     "SLURM does not answer",
                     printable(answer.output),
                     "nothing is lost: submit the same job again, and the run goes on");
    });
    std::istringstream words(answer.output);
    std::int64_t restarts = job.restarts;
    words >> end.job_state >> restarts;
    end.is_newest_start = restarts == job.restarts;
}

// The job dies in it, if it succeeds.
void requeue(const SlurmJob& job) {
    const auto answer = slurm_answer({"scontrol", "requeue", job.id});
    check(answer.exit_code == 0, [&] {
        return Error("E522",
                     fmt::format("job {} could not be requeued", job.id),
                     printable(answer.output),
                     "nothing is lost: submit the same job again, and the run goes on");
    });
}

// Ranks may have been killed before one of them could say it. A start has a control group of its
// own.
void tell_of_memory() {
    const bool is_new = control_group_memory_end().is_of_job;
    if (const std::string lack = is_new ? lack_of_memory(0) : ""; !lack.empty())
        print_once(fmt::format("lockstep: memory ran out: {}\n  fix: {}\n", lack, fix_of_memory()));
}

int epilog(const EpilogOptions& options) {
    const RemovedFolder rank_ends(options.dry_run ? fs::path() : options.rank_ends);
    const SlurmJob job = read_slurm_job(Environment());
    JobEnd end{.launcher_exit = options.launcher_exit, .restarts = job.restarts};
    const auto state = read_run_state(options.run);
    end.run = run_end(state, options.run);
    if (!options.rank_ends.empty()) end.rank_ends = read_rank_ends(options.rank_ends);
    if (!options.dry_run && end.run != RunEnd::complete) ask_about_job(job, end);
    if (state && end.is_newest_start) {
        end.failure_exit = state->exit;
        end.idle_starts =
            note_start_end(options.run, options.dry_run ? StartsFile::leave : StartsFile::update);
    }
    const RequeueVerdict verdict = judge_job_end(end, options.limits);
    tell_of_memory();
    print_once(fmt::format(
        "lockstep: job {} on {}, start {}: {}; {}\n",
        job.id,
        job.node_list.empty() ? "?" : job.node_list,
        job.restarts + 1,
        verdict.reason,
        verdict.requeues ? "requeued" : fmt::format("ends with exit code {}", verdict.exit_code)));
    if (verdict.requeues && !options.dry_run) requeue(job);
    return verdict.exit_code;
}

OptionTable epilog_table(EpilogOptions& options) {
    return {giving_up_group(options.run, options.limits),
            {"What happened",
             {whole_option("rc", options.launcher_exit, {0, 255}, "exit code of mpirun or srun"),
              path_option("rank-ends",
                          "DIR",
                          options.rank_ends,
                          "folder with the errors of this start's failed ranks; it is removed")}},
            rehearsal_group(options.dry_run)};
}

}  // namespace

Command slurm_epilog_command() {
    const auto options = std::make_shared<EpilogOptions>();
    return {
        .name = "slurm epilog",
        .summary = "end a batch script: done, requeue, or give up",
        .usage = "lockstep slurm epilog --run DIR --rc N [options]",
        .text =
            "The last line of a batch script, after mpirun or srun has ended. It decides by the\n"
            "run's state if this start wrote it, because mpirun returns 0 even if it lost a node.\n"
            "Otherwise it decides by the errors of the failed ranks ($LOCKSTEP_RANK_ENDS, which\n"
            "job.sh sets). It requeues the job if the run is saved or was stopped from outside.\n"
            "It ends with the exit code of the run or of the rank if another start would fail\n"
            "the same way. See docs/slurm.md.\n",
        .table = epilog_table(*options),
        .run = [options](const Invocation&) {
            check_given(!options->run.empty(), "run", "give the run directory");
            return epilog(*options);
        }};
}

}  // namespace lockstep
