// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/requeue_rule.hpp"
#include "lockstep/cluster/slurm_facts.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/process.hpp"
#include "lockstep/run/checkpoint.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/run/run_status.hpp"

#include "command.hpp"
#include "option_groups.hpp"
#include "slurm/idle_starts.hpp"

#include <algorithm>
#include <cstdio>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

namespace lockstep {
namespace {

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
    check(job.restarts == 0 || fs::exists(options.run), [&] {
        return Error("E547",
                     fmt::format("run '{}' is gone", options.run.string()),
                     fmt::format("SLURM has started this job {} times, and it was there before",
                                 job.restarts + 1),
                     "bring it back; or submit the job again to begin a new run at step 0");
    });
    // Not locked: until train makes it a run, it is none.
    make_directories(options.run);
    check(fs::is_empty(options.run), [&] {
        return Error("E407",
                     fmt::format("'{}' has files in it, but is no run", options.run.string()),
                     "a run directory is made in an empty or new folder",
                     "give the name of a new folder");
    });
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
    const auto parts = environment.integer("SLURM_HET_SIZE").value_or(1);
    if (parts < 2 || parts > most_het_parts)
        return fmt::format("{}, {} node(s) of partition {}",
                           job.node_list.empty() ? "?" : printable(job.node_list),
                           word("SLURM_JOB_NUM_NODES"),
                           word("SLURM_JOB_PARTITION"));
    std::vector<std::string> texts;
    for (std::int64_t part = 0; part < parts; ++part) {
        const auto of_part = [&](const char* name) {
            return word(fmt::format("{}_HET_GROUP_{}", name, part));
        };
        texts.push_back(fmt::format("{}, {} node(s) of partition {}",
                                    of_part("SLURM_JOB_NODELIST"),
                                    of_part("SLURM_JOB_NUM_NODES"),
                                    of_part("SLURM_JOB_PARTITION")));
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

int prolog(const PrologOptions& options) {
    const Environment environment;
    const SlurmJob job = read_slurm_job(environment);
    settle_run_directory(options, job);
    const std::int64_t idle =
        is_run(options.run) ? note_start_begin(options.run, StartsFile::update) : 0;
    const auto left_s = seconds_left(job, environment);
    say_facts(job, environment, left_s, options.run);
    say_unused_cores(job, environment);
    check_start(job.restarts, idle, options.limits);
    print_once(
        fmt::format("{}\n", left_s ? static_cast<std::int64_t>(unix_time_s()) + *left_s : 0));
    return 0;
}

OptionTable prolog_table(PrologOptions& options) {
    return {giving_up_group(options.run, options.limits),
            {"Earlier starts",
             {duration_option("lock-wait",
                              options.lock_wait_s,
                              "longest wait until the ranks of an earlier start have ended")}}};
}

}  // namespace

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
        .table = prolog_table(*options),
        .run = [options](const Invocation&) {
            check_given(!options->run.empty(), "run", "give the run directory");
            return prolog(*options);
        }};
}

}  // namespace lockstep
