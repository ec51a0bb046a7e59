// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/doctor.hpp"
#include "lockstep/cluster/placement.hpp"
#include "lockstep/comm/agree.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/process.hpp"
#include "lockstep/launch/examine.hpp"
#include "lockstep/launch/gpu_needs.hpp"
#include "lockstep/launch/host_probe.hpp"
#include "lockstep/launch/live_placement.hpp"
#include "lockstep/launch/supervise.hpp"

#include "command.hpp"
#include "option_groups.hpp"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr const char* doctor_help =
    R"(Checks each rank and the whole job for causes of failures, hangs and low speed. Each finding says
what, why, and what to do. Errors stop training, warnings cost speed or safety.
Without a launcher it checks this node; --np N starts N ranks here. Under mpirun or srun it checks
the whole job: it sums, measures links, and tests whether nodes reach each other.
Exit code: 78 if there is an error, otherwise 0.
--json prints the findings with the facts behind them.

Examples:
  lockstep doctor
  lockstep doctor --np 2 --threads 1
  mpirun -np 16 lockstep doctor --run runs/a --write-exclude bad-nodes
  srun --mpi=pmix lockstep doctor --preflight --only D,C2,F --json
)";

struct DoctorOptions {
    int np = 0;
    bool oversubscribe = false;
    DoctorPlan plan;
    std::optional<ComputeOn> device;  ///< nothing: GPUs where there are any
    std::vector<std::string> only, skip;
    bool preflight = false, json = false, list = false, answers_probe = false;
    fs::path exclude_file, launcher_log;
};

OptionTable table_of(DoctorOptions& options) {
    return {
        {"What to look for",
         {list_option(
              "only", "ID", options.only, "make only these checks (G2) or families of checks (G)"),
          list_option("skip", "ID", options.skip, "leave out these checks or families"),
          flag_option(
              "preflight", options.preflight, "make only checks that take less than two seconds"),
          flag_option("list", options.list, "list the checks and end")}},
        {"What the run will be",
         {whole_option("threads", options.plan.threads, {1, 4096}, "threads of each rank"),
          choice_option<std::optional<ComputeOn>>(
              "device",
              options.device,
              {{"auto", {}}, {"cpu", ComputeOn::cpus}, {"gpu", ComputeOn::gpus}},
              "device that ranks compute on; auto: GPUs if there are any"),
          flag_option(
              "expect-rdma", options.plan.expects_rdma, "report nodes without InfiniBand or RoCE"),
          text_option("run", "DIR", options.plan.run_folder, "the run's folder, which is checked"),
          bytes_option(
              "shared-memory", options.plan.shared_bytes, "room needed in /dev/shm of a node", 0),
          bytes_option("memory", options.plan.memory_bytes, "memory needed by each rank", 0),
          duration_option("duration", options.plan.duration_s, "expected duration of the run")}},
        ranks_section(options.np, options.oversubscribe),
        {"Output",
         {path_option("write-exclude",
                      "FILE",
                      options.exclude_file,
                      "write the names of bad nodes, one a line (sbatch --exclude)"),
          path_option("launcher-log",
                      "FILE",
                      options.launcher_log,
                      "file with the output of mpirun or srun, which is searched for PMIx errors"),
          flag_option("answer-probe",
                      options.answers_probe,
                      "for 'train --hosts': report and try addresses over stdin and stdout")}},
        json_group(options.json)};
}

std::string list_text() {
    std::string lines;
    for (const DoctorCheck& each : doctor_checks())
        lines += fmt::format("{:<4} {:<8} {:<5} {}\n",
                             each.id,
                             severity_name(each.severity),
                             each.pace == Pace::fast ? "fast" : "slow",
                             each.title);
    return lines;
}

DoctorPlan plan_of(const DoctorOptions& options, const RankFacts& facts) {
    DoctorPlan plan = options.plan;
    plan.uses_gpus =
        options.device ? *options.device == ComputeOn::gpus : !usable_gpus(facts.node()).empty();
    return plan;
}

/// The driver is G1's.
std::vector<MissingPart> missing_parts(const ProcessContext& process) {
    std::vector<MissingPart> missing;
    for (const GpuNeed& need : judge_gpu_needs(
             read_gpu_needs(process.facts->node(), rank_program(process.program), true)))
        if (need.kind != GpuNeedKind::driver && !need.fault.empty())
            missing.push_back({need.what, need.fault, need.fix});
    return missing;
}

/// Collective. On rank 0.
std::vector<DoctorFacts> facts_of_all(const DoctorOptions& options, const ProcessContext& process) {
    const Communicator& world = process.ranks;
    const DoctorPlan plan = agree(world, [&] { return plan_of(options, *process.facts); });
    DoctorFacts mine = examine_rank(world, *process.facts, plan);
    if (plan.uses_gpus && mine.local_rank == 0)
        mine.program.missing_for_gpus = missing_parts(process);
    if (world.is_root() && !options.launcher_log.empty())
        mine.program.launcher_messages = pmix_errors_in(read_file(options.launcher_log));
    if (options.preflight) {
        examine_load(world, mine);
    } else {
        select_own_gpu(world, *process.facts, mine);
        examine_slowly(world, mine);
    }
    return gather_facts(world, mine);
}

/// srun without PMIx starts every process as a world of its own; one of them speaks. A number that
/// is left over from another launch silences nobody.
bool speaks(const DoctorFacts& mine) {
    const bool is_below_srun = std::ranges::any_of(mine.program.ancestors, [](const auto& program) {
        return std::string_view(program).ends_with("slurmstepd");
    });
    const auto task = Environment().integer("SLURM_PROCID");
    return launched_by_mpi() || !is_below_srun || task.value_or(0) == 0;
}

void report(const DoctorOptions& options,
            const std::vector<DoctorFacts>& all,
            const std::vector<DoctorFinding>& findings,
            std::size_t checks) {
    if (!options.exclude_file.empty()) {
        std::string names;
        for (const std::string& host : hosts_to_exclude(findings, all)) names += host + "\n";
        write_file_atomically(options.exclude_file, names);
    }
    if (!speaks(all.front())) return;
    print_once(options.json ? findings_json(findings, checks, all.size()) + "\n"
                            : network_text(all) + findings_text(findings, checks));
}

/// Collective. Whether there was an error, on all ranks.
bool examine_all(const DoctorOptions& options, const ProcessContext& process) {
    const Communicator& world = process.ranks;
    DoctorSelection selection{options.only, options.skip};
    if (options.preflight) selection.slowest = Pace::fast;
    const auto checks = agree(world, [&] { return selected_checks(selection).size(); });
    const std::vector<DoctorFacts> all = facts_of_all(options, process);
    const std::string verdict = from_root(world, [&] {
        const auto findings = run_checks(all, selection);
        report(options, all, findings, checks);
        return std::string(has_errors(findings) ? "errors" : "");
    });
    return !verdict.empty();
}

int run(const DoctorOptions& options, const Invocation& call) {
    if (options.list) {
        print_once(list_text());
        return 0;
    }
    if (options.answers_probe) {
        answer_probe();
        return 0;
    }
    check_rank_count(call);
    if (options.np > 0 && !launched_by_mpi())
        return supervise_ranks(
            {options.np, options.oversubscribe, call.words, {}, this_executable(), {}});
    return examine_all(options, call.process) ? static_cast<int>(ExitCode::config) : 0;
}

}  // namespace

Command doctor_command() {
    auto options = std::make_shared<DoctorOptions>();
    return {.name = "doctor",
            .summary = "find what would break or slow down a job, before it starts",
            .usage = "lockstep doctor [--np N] [--preflight] [--only ID,..] [options]",
            .text = doctor_help,
            .table = table_of(*options),
            .run = [options](const Invocation& call) { return run(*options, call); }};
}

}  // namespace lockstep
