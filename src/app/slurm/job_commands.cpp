// SPDX-License-Identifier: Apache-2.0
// The first and the last command of a batch script: prolog and epilog.
#include "lockstep/cluster/job_request.hpp"
#include "lockstep/cluster/launch_facts.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/core/control_group.hpp"
#include "lockstep/core/host_name.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/process.hpp"
#include "lockstep/core/record.hpp"
#include "lockstep/run/checkpoint.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/run/run_status.hpp"
#include "lockstep/run/verdict.hpp"

#include "command.hpp"
#include "option_groups.hpp"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

namespace lockstep {

static void describe(Record& record, RankEnd& end) {
    LOCKSTEP_EACH(record.field, end.who, end.exit, end.error);
}

namespace {

/// The starts of a run, in a row, without a new checkpoint: RUN/starts.json.
struct Starts {
    std::int64_t newest_checkpoint = -1;  ///< step, when last counted; -1: none
    std::int64_t idle = 0;
    bool is_known = false;          ///< a start was noted before
    bool is_open = false;           ///< one has begun and not ended
    std::int64_t incarnation = -1;  ///< the run's newest when it began; -1: none, or no prolog ran
};

void describe(Record& record, Starts& starts) {
    record.field("newest_checkpoint", starts.newest_checkpoint);
    record.field("idle_starts", starts.idle);
    LOCKSTEP_EACH(record.later, starts.is_open, starts.incarnation);
}

fs::path file_of(const fs::path& root) {
    return root / "starts.json";
}

Starts read_starts_file(const fs::path& root) {
    const fs::path path = file_of(root);
    if (!fs::exists(path)) return {};
    auto starts = record_from_json<Starts>(read_json(path), path.string());
    starts.is_known = true;
    return starts;
}

void write_starts_file(const fs::path& root, const Starts& starts) {
    write_file_atomically(file_of(root), json_of_record(starts).dump(2) + "\n");
}

std::int64_t newest_checkpoint(const fs::path& root) {
    const auto checkpoints = list_checkpoints(root / "ckpt");
    return checkpoints.empty() ? -1 : checkpoints.back().step;
}

void count_end(Starts& starts, std::int64_t newest) {
    starts.idle = newest > starts.newest_checkpoint ? 0 : starts.idle + 1;
    starts.newest_checkpoint = newest;
}

/// Notes that a start of the run in `root` begins. An earlier start that never noted its end,
/// because its node or its batch script died, is counted now. Returns the idle starts in a row so
/// far. Errors: E222 if the file is damaged, and those of writing it.
std::int64_t note_start_begin(const fs::path& root) {
    Starts starts = read_starts_file(root);
    const std::int64_t newest = newest_checkpoint(root);
    if (starts.is_open) count_end(starts, newest);
    if (!starts.is_known) starts.newest_checkpoint = newest;
    starts.is_open = true;
    starts.incarnation = read_incarnation(root);
    write_starts_file(root, starts);
    return starts.idle;
}

/// Notes an ended start, if `is_kept`. Returns the idle starts in a row, including this one.
/// Errors: as above.
std::int64_t note_start_end(const fs::path& root, bool is_kept) {
    Starts starts = read_starts_file(root);
    count_end(starts, newest_checkpoint(root));
    starts.is_open = false;
    starts.incarnation = -1;
    if (is_kept) write_starts_file(root, starts);
    return starts.idle;
}

constexpr std::int64_t most_het_parts = 64;

struct PrologOptions {
    fs::path run;
    RequeueLimits limits;
    double lock_wait_s = 20;  // ranks of a killed job need a moment to die
};

// Seconds that the job has left; nothing where it has no limit, or SLURM does not say.
std::optional<std::int64_t> seconds_left(const SlurmJob& job, const Environment& environment) {
    if (const auto end = environment.integer("SLURM_JOB_END_TIME"))  // since SLURM 23.02
        return *end - static_cast<std::int64_t>(unix_time_s());
    constexpr double patience_s = 15;
    ProcessResult answer;
    try {
        answer = run_process({"squeue", "-h", "-j", job.id, "-o", "%L"}, {}, patience_s);
    } catch (const Error& error) {
        answer = {.exit_code = 1, .output = error.what()};
    }
    const std::string text = answer.output.substr(0, answer.output.find('\n'));
    if (answer.exit_code != 0)
        once(Level::warn,
             "the job's end is not known, so that the run saves only when SLURM sends its signal: "
             "{}",
             text);
    return answer.exit_code == 0 ? parse_slurm_time(text) : std::nullopt;
}

// A folder that the run can have: made, or a run's own and held by nobody. What dead starts have
// left half-written goes.
void settle_run_directory(const PrologOptions& options, const SlurmJob& job) {
    if (is_run(options.run)) {
        const auto held = RunDirectory::open(options.run, options.lock_wait_s);
        remove_unfinished_checkpoints(held.paths().checkpoints());
        return;
    }
    // The job's first start made at least the folder.
    check(job.restarts == 0 || fs::exists(options.run),
          "E547",
          fmt::format("run '{}' is gone", options.run.string()),
          fmt::format("SLURM has started this job {} times, and it was there before",
                      job.restarts + 1),
          "bring it back; or submit the job again to begin a new run at step 0");
    // Not locked: until train makes it a run, it is none.
    make_directories(options.run);
    check(fs::is_empty(options.run),
          "E407",
          fmt::format("'{}' has files in it, but is no run", options.run.string()),
          "a run directory is made in an empty or new folder",
          "give the name of a new folder");
    const fs::path probe = options.run / ".probe";
    write_file_atomically(probe, "");
    fs::remove(probe);
}

std::string run_text(const fs::path& run) {
    const auto state = read_run_state(run);
    if (!state) return "begins";
    if (state->phase == RunPhase::complete)
        return fmt::format("is complete at step {}", state->step);
    const auto checkpoints = list_checkpoints(RunPaths{run}.checkpoints());
    return fmt::format("{}{} at step {} and {}",
                       state->phase == RunPhase::failed ? "" : "was ",
                       run_phase_name(state->phase),
                       state->step,
                       checkpoints.empty()
                           ? std::string("has no checkpoint")
                           : fmt::format("goes on from step {}", checkpoints.back().step));
}

// "node[1-2], 2 node(s) of partition debug", for each part of a heterogeneous job.
std::string places_text(const SlurmJob& job, const Environment& environment) {
    const auto word = [&](const std::string& name) {
        return printable(environment.text(name).value_or("?"));
    };
    const auto place = [&](const std::string& nodes, const std::string& part) {
        return fmt::format("{}, {} node(s) of partition {}",
                           nodes,
                           word("SLURM_JOB_NUM_NODES" + part),
                           word("SLURM_JOB_PARTITION" + part));
    };
    const auto parts = environment.integer("SLURM_HET_SIZE").value_or(1);
    if (parts < 2 || parts > most_het_parts)
        return place(job.node_list.empty() ? "?" : printable(job.node_list), "");
    std::vector<std::string> texts;
    for (std::int64_t i = 0; i < parts; ++i) {
        const std::string part = fmt::format("_HET_GROUP_{}", i);
        texts.push_back(place(word("SLURM_JOB_NODELIST" + part), part));
    }
    return fmt::format("{}", fmt::join(texts, ", and "));
}

// To stderr: stdout carries the deadline to the script.
void say_facts(const SlurmJob& job,
               const Environment& environment,
               const std::optional<std::int64_t>& left_s,
               const fs::path& run) {
    write_error(
        fmt::format("lockstep: job {} ({}) on {}, start {}, {}; run '{}' {}\n",
                    job.id,
                    printable(environment.text("SLURM_JOB_NAME").value_or("?")),
                    places_text(job, environment),
                    job.restarts + 1,
                    left_s ? fmt::format("{} left", duration_text(static_cast<double>(*left_s)))
                           : "no end known",
                    printable(run.string()),
                    run_text(run)));
}

// A template that was tried on a laptop asks for as little on a large node.
void say_unused_cores(const SlurmJob& job, const Environment& environment) {
    const auto number = [&](const char* name) { return environment.integer(name).value_or(0); };
    const auto tasks = number("SLURM_NTASKS_PER_NODE");
    const auto used = tasks * std::max<std::int64_t>(number("SLURM_CPUS_PER_TASK"), 1);
    const auto cores =
        std::max<std::int64_t>(number("SLURM_CPUS_ON_NODE"), ::sysconf(_SC_NPROCESSORS_ONLN));
    constexpr int few = 4;
    if (job.restarts > 0 || tasks == 0 || used * few > cores) return;
    once(Level::warn,
         "{} of the {} processors of this node compute: {} rank(s) with {} each; more with "
         "--ntasks-per-node, or --cpus-per-task and train's --threads",
         used,
         cores,
         tasks,
         used / tasks);
}

// SLURM would requeue such a job again and again.
void say_short_time(const std::optional<std::int64_t>& left_s) {
    constexpr std::int64_t least_s = 180;
    if (left_s && *left_s < least_s)
        once(Level::warn,
             "{} are left, and SLURM's signal of the templates comes 2 to 3 minutes before the "
             "limit: hardly anything is trained; fix: sbatch --time=10 or more",
             duration_text(static_cast<double>(*left_s)));
}

int prolog(const PrologOptions& options) {
    const Environment environment;
    const SlurmJob job = read_slurm_job(environment);
    settle_run_directory(options, job);
    const std::int64_t idle = is_run(options.run) ? note_start_begin(options.run) : 0;
    const auto left_s = seconds_left(job, environment);
    say_facts(job, environment, left_s, options.run);
    say_unused_cores(job, environment);
    say_short_time(left_s);
    check_start(job.restarts, idle, options.limits);
    print_once(
        fmt::format("{}\n", left_s ? static_cast<std::int64_t>(unix_time_s()) + *left_s : 0));
    return 0;
}

struct EpilogOptions {
    fs::path run;
    int launcher_exit = 0;
    fs::path rank_ends;
    RequeueLimits limits;
    bool dry_run = false;
};

/// Returns the ends in the order of ranks, without torn ones. None if there is no such folder.
std::vector<RankEnd> read_rank_ends(const fs::path& folder) {
    std::vector<fs::path> files;
    std::error_code failed;
    for (const auto& entry : fs::directory_iterator(folder, failed))
        if (entry.path().extension() == ".json") files.push_back(entry.path());
    std::ranges::sort(files);
    std::vector<RankEnd> ends;
    for (const fs::path& file : files) {
        try {
            ends.push_back(record_from_json<RankEnd>(read_json(file, 1 << 16), file.string()));
        } catch (const Error&) {
            // Its writer died over it.
        }
    }
    return ends;
}

RunEnd run_end(const std::optional<RunState>& state, const fs::path& run) {
    if (!state) return RunEnd::unknown;
    const std::int64_t before = read_starts_file(run).incarnation;
    if (state->incarnation <= before)
        return read_incarnation(run) > before ? RunEnd::running : RunEnd::not_begun;
    if (state->phase == RunPhase::running) return RunEnd::running;
    if (state->phase == RunPhase::complete) return RunEnd::complete;
    if (state->phase == RunPhase::failed) return RunEnd::failed;
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
    check(answer.exit_code == 0,
          "E511",
          "SLURM does not answer",
          printable(answer.output),
          "nothing is lost: submit the same job again, and the run goes on");
    std::istringstream words(answer.output);
    std::int64_t restarts = job.restarts;
    words >> end.job_state >> restarts;
    end.is_newest_start = restarts == job.restarts;
}

// The job dies in it, if it succeeds.
void requeue(const SlurmJob& job) {
    const auto answer = slurm_answer({"scontrol", "requeue", job.id});
    check(answer.exit_code == 0,
          "E522",
          fmt::format("job {} could not be requeued", job.id),
          printable(answer.output),
          "nothing is lost: submit the same job again, and the run goes on");
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
        end.idle_starts = note_start_end(options.run, !options.dry_run);
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

}  // namespace

void note_rank_end(const Error& error, const std::string& ranks) noexcept {
    try {
        const Environment environment;
        const auto folder = environment.text("LOCKSTEP_RANK_ENDS");
        if (!folder || folder->empty()) return;
        const std::int64_t rank = read_launch_facts(environment).rank.value_or(0);
        RankEnd end{.who = ranks.empty() ? fmt::format("rank {} on {}", rank, host_name()) : ranks,
                    .exit = static_cast<int>(error.exit_code()),
                    .error = fmt::format("{}: {}", error.code(), error.what())};
        make_directories(*folder);
        write_file_atomically(fs::path(*folder) / fmt::format("rank-{:05}.json", rank),
                              json_of_record(end).dump() + "\n");
    } catch (const std::exception&) {
        // Then the launcher's exit code decides.
    }
}

Command slurm_prolog_command() {
    const auto options = std::make_shared<PrologOptions>();
    return {
        .name = "slurm prolog",
        .summary = "begin a batch script: check whether to start the ranks",
        .usage = "lockstep slurm prolog --run DIR [options]",
        .text =
            "Stands in a batch script before mpirun or srun. It prints what job this is, checks\n"
            "that the run directory can be used and that no other job uses it, and removes\n"
            "unfinished files of dead starts. It ends with 93 if SLURM restarts a job that makes\n"
            "no progress, also after lost nodes, when no epilog ran. It prints the Unix time of\n"
            "the job's end for 'train --deadline', or 0 if there is none:\n"
            "  LOCKSTEP_DEADLINE=$(lockstep slurm prolog --run \"$run\") || exit\n"
            "  export LOCKSTEP_DEADLINE\n",
        .table = {giving_up_group(options->run, options->limits),
                  {"Earlier starts",
                   {duration_option(
                       "lock-wait",
                       options->lock_wait_s,
                       "longest wait until the ranks of an earlier start have ended")}}},
        .run = [options](const Invocation&) {
            check_given(!options->run.empty(), "run", "give the run directory");
            return prolog(*options);
        }};
}

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
        .table =
            {giving_up_group(options->run, options->limits),
             {"What happened",
              {whole_option("rc", options->launcher_exit, {0, 255}, "exit code of mpirun or srun"),
               path_option("rank-ends DIR",
                           options->rank_ends,
                           "folder with the errors of this start's failed ranks; it is removed")}},
             rehearsal_group(options->dry_run)},
        .run = [options](const Invocation&) {
            check_given(!options->run.empty(), "run", "give the run directory");
            return epilog(*options);
        }};
}

}  // namespace lockstep
