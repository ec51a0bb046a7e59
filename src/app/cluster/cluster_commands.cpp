// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/doctor.hpp"
#include "lockstep/cluster/placement.hpp"
#include "lockstep/comm/agree.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/process.hpp"
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
              "only ID", options.only, "make only these checks (G2) or families of checks (G)"),
          list_option("skip ID", options.skip, "leave out these checks or families"),
          flag_option(
              "preflight", options.preflight, "make only checks that take less than two seconds"),
          flag_option("list", options.list, "list the checks and end")}},
        {"What the run will be",
         {whole_option("threads", options.plan.threads, {1, 4096}, "threads of each rank"),
          choice_option("device",
                        options.device,
                        {{"auto", {}}, {"cpu", ComputeOn::cpus}, {"gpu", ComputeOn::gpus}},
                        "device that ranks compute on; auto: GPUs if there are any"),
          flag_option(
              "expect-rdma", options.plan.expects_rdma, "report nodes without InfiniBand or RoCE"),
          text_option("run DIR", options.plan.run_folder, "the run's folder, which is checked"),
          bytes_option(
              "shared-memory", options.plan.shared_bytes, "room needed in /dev/shm of a node", 0),
          bytes_option("memory", options.plan.memory_bytes, "memory needed by each rank", 0),
          duration_option("duration",
                          options.plan.duration_s,
                          "expected duration of the run, to be compared with what is left of the "
                          "SLURM job")}},
        ranks_section(options.np, options.oversubscribe),
        {"Output",
         {path_option("write-exclude FILE",
                      options.exclude_file,
                      "write the names of bad nodes, one a line (sbatch --exclude)"),
          path_option("launcher-log FILE",
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
        write_named_file(options.exclude_file, names);
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
    const auto checks = agree(world, [&] {
        const std::size_t count = selected_checks(selection).size();
        check(count > 0,
              "E106",
              "--only, --skip and --preflight leave no check",
              "--preflight leaves out slow checks, such as all of family T",
              "drop one of them");
        return count;
    });
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

enum class PlanFormat { table, json, rankfile, mpirun, srun, sbatch };

struct MapOptions {
    fs::path topology, save_topology, check;
    int nodes = 0, tasks_per_node = 0, np = 0;
    std::string hosts;
    MapBy map_by = MapBy::slot;
    PlanFormat format = PlanFormat::table;
    PlacementRules rules;
    bool smt = false, share_gpu = false, oversubscribe = false;
};

constexpr const char* map_help =
    R"(Shows the node, cores, GPU and nearest network port of each rank: of the current job (under mpirun or
srun), of this node (-np), or of a planned job. It starts and binds nothing.

Cores are split evenly next to the GPUs, without SMT siblings. Bindings of a launcher are kept; a '*'
marks such cores. The path class is nvidia-smi's: PIX, PXB, PHB, NODE, SYS, from near to far.

Examples:
  lockstep map -np 2
  mpirun -np 4 lockstep map
  lockstep map --save-topology dgx.json                 on such a node, once
  lockstep map --nodes 2 --ntasks-per-node 8 --topology dgx.json --format sbatch
  lockstep map --hosts r1:4,r2:2 -np 6
  lockstep map -np 2 --format json > plan.json; mpirun -np 2 lockstep map --check plan.json
)";

PlacementRules rules_of(const MapOptions& options) {
    PlacementRules rules = options.rules;
    if (options.smt) rules.siblings = SiblingUse::all_threads;
    if (options.share_gpu) rules.gpus = SharingRule::allow;
    if (options.oversubscribe) rules.cores = SharingRule::allow;
    return rules;
}

/// A plan, and what it is made from: nothing where nobody knows the nodes.
struct Mapped {
    Placement plan;
    std::optional<NodeTopology> node;
};

/// Hosts as given; where only numbers are, they are called node0, node1, ...
std::vector<HostSlots> hosts_of(const MapOptions& options, const NodeTopology* node) {
    if (!options.hosts.empty()) return parse_hosts(options.hosts);
    const int nodes = std::max(1, options.nodes);
    int tasks = options.tasks_per_node;
    if (tasks == 0) tasks = options.np > 0 ? (options.np + nodes - 1) / nodes : 1;
    if (nodes == 1 && node != nullptr) return {{node->host, tasks}};
    std::vector<HostSlots> hosts;
    for (int i = 0; i < nodes; ++i) hosts.push_back({fmt::format("node{}", i), tasks});
    return hosts;
}

Mapped map_planned(const MapOptions& options, const RankFacts& facts) {
    Mapped mapped;
    const bool is_elsewhere = !options.hosts.empty() || options.nodes > 0;
    if (!options.topology.empty())
        mapped.node = load_topology(options.topology);
    else if (!is_elsewhere)
        mapped.node = facts.node();
    const NodeTopology* node = mapped.node ? &*mapped.node : nullptr;
    const auto hosts = hosts_of(options, node);
    mapped.plan =
        plan_job(hosts, lay_out(hosts, options.np, options.map_by), node, rules_of(options));
    mapped.plan.names_hosts = !options.hosts.empty() || (!is_elsewhere && options.topology.empty());
    return mapped;
}

std::string written(const Mapped& mapped, PlanFormat format) {
    if (format == PlanFormat::json) return serialize(mapped.plan) + "\n";
    if (format == PlanFormat::rankfile) return rankfile_text(mapped.plan);
    if (format == PlanFormat::mpirun)
        return mpirun_text(mapped.plan, mapped.node ? &*mapped.node : nullptr);
    if (format == PlanFormat::srun) return srun_text(mapped.plan);
    if (format == PlanFormat::sbatch) return sbatch_text(mapped.plan);
    return placement_table(mapped.plan);
}

int map_live(const ProcessContext& process, const MapOptions& options) {
    const Communicator& ranks = process.ranks;
    if (!options.check.empty()) {
        check_plan(ranks, *process.facts, options.check);
        print_once(fmt::format("as planned: {} rank(s)\n", ranks.size()));
        return 0;
    }
    const LivePlacement live = place_live(ranks, *process.facts, rules_of(options));
    from_root(ranks, [&] {
        if (!options.save_topology.empty()) save_topology(live.node, options.save_topology);
        return std::string();
    });
    print_once(written({live.plan, live.node}, options.format));
    return 0;
}

bool is_planned(const MapOptions& options) {
    return !options.topology.empty() || !options.hosts.empty() || options.nodes > 0 ||
           options.tasks_per_node > 0 || options.np > 0;
}

void refuse_both(const MapOptions& options) {
    const bool names_both =
        !options.hosts.empty() && (options.nodes > 0 || options.tasks_per_node > 0);
    check_fits(!names_both,
               "--hosts together with --nodes or --ntasks-per-node",
               "both decide where ranks run",
               "--hosts NAME:SLOTS,... alone");
    check_fits(options.check.empty() || !is_planned(options),
               "--check together with options of a plan",
               "it compares a plan's file with the job that runs",
               "mpirun -np N lockstep map --check FILE");
}

int run_map(const MapOptions& options, const ProcessContext& process) {
    const Communicator& ranks = process.ranks;
    agree(ranks, [&] { refuse_both(options); });
    if (!is_planned(options)) return map_live(process, options);
    if (!ranks.is_root()) return 0;
    if (!options.save_topology.empty()) save_topology(process.facts->node(), options.save_topology);
    print_once(written(map_planned(options, *process.facts), options.format));
    return 0;
}

OptionTable map_table(MapOptions& o) {
    return {
        {"What to plan; without any of these, the job that runs",
         {path_option("topology FILE", o.topology, "plan for nodes like the one in this file"),
          whole_option("nodes", o.nodes, {0, 1 << 16}, "number of nodes; 0: one"),
          whole_option("ntasks-per-node", o.tasks_per_node, {0, 1 << 16}, "ranks of each node"),
          filled(
              list_option("hosts NAME:SLOTS,...", o.hosts, "hosts, and how many ranks each takes")),
          whole_option("np", o.np, {0, 1 << 20}, "ranks, also -np; 0: one for each slot"),
          enum_option("map-by slot|node",
                      o.map_by,
                      "slot: fill one host after the other; node: hosts take turns")}},
        {"Rules",
         {whole_option("threads",
                       o.rules.threads,
                       {0, 4096},
                       "threads that compute in each rank; 0: one per core"),
          enum_option("comm-core auto|on|off",
                      o.rules.comm_core,
                      "reserve a core for communication; auto: if ranks have GPUs"),
          enum_option("device auto|cpu",
                      o.rules.compute_on,
                      "device that ranks compute on; auto: GPUs if there are any"),
          flag_option("smt", o.smt, "use all hardware threads of a core"),
          flag_option("share-gpu", o.share_gpu, "allow more ranks than GPUs, for tests"),
          flag_option("oversubscribe", o.oversubscribe, "allow more ranks than cores, for tests")}},
        {"Output",
         {enum_option(
              "format table|json|rankfile|mpirun|srun|sbatch", o.format, "format of the plan"),
          path_option(
              "save-topology FILE", o.save_topology, "write a file with this node's topology"),
          path_option("check FILE",
                      o.check,
                      "fail unless the job runs as this plan says (a file of --format json)")}}};
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

Command map_command() {
    auto options = std::make_shared<MapOptions>();
    return {.name = "map",
            .summary = "show which rank runs on which cores, GPU and network port",
            .usage = "lockstep map [options]   or   mpirun -np N lockstep map [options]",
            .text = map_help,
            .table = map_table(*options),
            .run = [options](const Invocation& call) { return run_map(*options, call.process); }};
}

}  // namespace lockstep
