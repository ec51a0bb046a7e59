// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/launch_facts.hpp"
#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/comm/agree.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/process.hpp"
#include "lockstep/launch/live_placement.hpp"
#include "lockstep/launch/supervise.hpp"

#include "bench/comm_report.hpp"
#include "command.hpp"
#include "option_groups.hpp"

#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

constexpr const char* bench_help =
    R"(Measures how fast ranks sum gradients here: one bucket of each size goes through the exchange that
training uses, over shared memory inside a node and by messages between nodes. Open MPI's all-reduce
takes turns with it, and others if you ask with --beside; compare their ratios. The sums of every
size are checked: they are whole numbers, and #wrong counts elements that differ.

Columns are nccl-tests': time is the median block's, best the fastest block's, of the slowest rank, for
one sum; algbw = size / time; busbw = algbw * 2(P-1)/P, which can be compared between numbers of ranks.

Examples:
  lockstep bench comm --np 2
  lockstep bench comm --np 2 -b 4KiB -e 64MiB -f 4 --beside ring,tree,open-mpi
  mpirun -np 8 lockstep bench comm --split inter --min-busbw 10
)";

/// All values of the command line of `bench comm`.
struct BenchOptions {
    std::uint64_t min_bytes = 8, max_bytes = 256u << 20;
    double factor = 2;
    MeasurePlan plan;  ///< but for its sizes and methods
    std::vector<std::string> beside = {"open-mpi"};
    RankSplit split = RankSplit::all;
    double min_busbw = 0;
    bool json = false;
    int np = 0;  ///< 0: not given
    bool oversubscribe = false;
};

std::vector<std::string> names_beside() {
    std::vector<std::string> names{"all", "none"};
    for (const SumMethod method : all_sum_methods().subspan(1)) names.emplace_back(name_of(method));
    return names;
}

OptionTable bench_option_table(BenchOptions& o) {
    return {
        {"Sizes",
         {bytes_option("min-bytes,b", o.min_bytes, "smallest buffer", 8),
          bytes_option("max-bytes,e", o.max_bytes, "largest buffer", 8),
          real_option("factor,f", o.factor, {1.01, 1e6}, "factor from one size to the next")}},
        {"What is measured",
         {some_option(
              "beside,a",
              o.beside,
              names_beside(),
              fmt::format("all-reduces to compare with: {}", fmt::join(names_beside(), ", "))),
          enum_option("split all|intra|inter",
                      o.split,
                      "which ranks sum together: all; intra, those of each node; "
                      "inter, one rank of each node")}},
        {"How",
         {whole_option("iterations,n",
                       o.plan.iterations,
                       {0, 1'000'000},
                       "sums in a timed block; 0: as many as fill 5 ms"),
          whole_option("warmup,w", o.plan.warmup, {0, 1'000'000}, "untimed sums of each size"),
          whole_option("rounds",
                       o.plan.rounds,
                       {1, 1000},
                       "timed blocks of each size; the all-reduces take turns"),
          whole_option(
              "check,c", o.plan.checks, {0, 1000}, "sums of each size that are checked exactly")}},
        {"Output",
         {real_option("min-busbw",
                      o.min_busbw,
                      {0, 1e6},
                      "fail if Lockstep's best bus bandwidth is below this, in GB/s")}},
        json_group(o.json),
        ranks_section(o.np, o.oversubscribe)};
}

/// The ranks that reduce together.
struct Group {
    Communicator ranks;
    bool is_measured = true;
};

void check_group(const Communicator& world, const Group& group, RankSplit split) {
    agree(world, [&] {
        check(split == RankSplit::all || !group.is_measured || group.ranks.size() > 1,
              "E653",
              fmt::format("--split {} leaves a group of one rank", split_name(split)),
              split == RankSplit::intra ? "a node has one rank alone" : "all ranks are on one node",
              split == RankSplit::intra ? "start two ranks or more on every node"
                                        : "start ranks on two nodes or more");
    });
}

/// Collective.
Group make_group(const Communicator& world, RankSplit split) {
    Group group{world};
    const Communicator node = world.split_by_node();
    if (split == RankSplit::intra) group.ranks = node;
    if (split == RankSplit::inter) group = {world.split(node.is_root() ? 0 : 1), node.is_root()};
    check_group(world, group, split);
    return group;
}

MeasurePlan plan_of(const BenchOptions& options) {
    MeasurePlan plan = options.plan;
    plan.sizes = size_steps(options.min_bytes, options.max_bytes, options.factor);
    const auto is_given = [&](std::string_view name) {
        return std::ranges::find(options.beside, name) != options.beside.end();
    };
    plan.methods.clear();
    for (const SumMethod method : all_sum_methods())
        if (method == SumMethod::lockstep || is_given("all") || is_given(name_of(method)))
            plan.methods.push_back(method);
    return plan;
}

/// Collective. Each rank has a slot of the exchange and a buffer for the others that take turns; a
/// node has one copy of the sums.
void check_memory(const Communicator& world, const MeasurePlan& plan) {
    const auto on_node = static_cast<std::uint64_t>(world.split_by_node().size());
    const std::uint64_t needed = (2 * on_node + 1) * plan.sizes.back();
    agree(world, [&] {
        const std::uint64_t memory = read_node_facts().usable_memory_bytes();
        check(memory == 0 || needed <= memory,
              "E650",
              fmt::format("buffers of {} on each rank need {} of memory on a node",
                          bytes_text(plan.sizes.back()),
                          bytes_text(needed)),
              fmt::format("it has {}", bytes_text(memory)),
              "give a smaller --max-bytes (-e), or fewer ranks");
    });
}

/// Collective. Everything but the measurements.
CommReport make_report(const BenchOptions& options,
                       const ProcessContext& process,
                       const Group& group) {
    CommReport report;
    report.plan = plan_of(options);
    // Where ranks run, however they share their cores.
    const PlacementRules rules{
        .cores = SharingRule::allow, .threads = 1, .compute_on = ComputeOn::cpus};
    report.seats = place_live(process.ranks, *process.facts, rules).reality;
    report.cpu_model = process.facts->node().cpu_model;
    report.split = options.split;
    report.ranks = group.ranks.size();
    std::set<std::string> nodes;
    for (const RankSeat& seat : report.seats) nodes.insert(seat.host_id);
    report.nodes = options.split == RankSplit::intra ? 1 : static_cast<int>(nodes.size());
    return report;
}

/// Collective over all ranks; those without a part in it wait without using their core.
void measure_all(const BenchOptions& options,
                 const Communicator& world,
                 const Group& group,
                 CommReport& report) {
    std::uint64_t done = 0;
    Progress progress(
        "measuring", report.plan.sizes.size(), ProgressUnit::count, progress_sink(options.json));
    if (world.is_root())  // it alone is asked where ranks stand
        report.plan.on_size = [&](std::size_t bytes) {
            progress.update(done++, fmt::format("measuring {}", bytes_text(bytes)));
        };
    if (group.is_measured) report.measured = measure(group.ranks, report.plan);
    world.barrier_asleep();
    if (options.split == RankSplit::intra) report.measured = worst_of(world, report.measured);
    report.plan.on_size = {};
}

int measure_on_ranks(const BenchOptions& options, const ProcessContext& process) {
    const Communicator& world = process.ranks;
    const Group group = make_group(world, options.split);
    CommReport report = make_report(options, process, group);
    check_memory(world, report.plan);
    if (!options.json) print_once(header_text(report));
    measure_all(options, world, group, report);
    from_root(world, [&] {
        print_once(options.json ? report_json(report).dump() + "\n"
                                : tables_text(report) + "verdict: " + verdict_text(report) + "\n");
        judge(report, options.min_busbw);
        return std::string();
    });
    return 0;
}

int launch(const BenchOptions& options, const Invocation& call) {
    check(options.np > 0,
          "E105",
          "--np is missing",
          "an all-reduce needs ranks, and no launcher started any",
          "for example: lockstep bench comm --np 2");
    return supervise_ranks(
        {options.np, options.oversubscribe, call.words, {}, this_executable(), {}});
}

int run(const BenchOptions& options, const Invocation& call) {
    const Communicator& world = call.process.ranks;
    agree(world, [&] {
        check_launch(call.process.facts->launch(), world.rank(), world.size());
        check_fits(options.min_bytes <= options.max_bytes,
                   fmt::format("--min-bytes {} is more than --max-bytes {}",
                               bytes_text(options.min_bytes),
                               bytes_text(options.max_bytes)),
                   "sizes go from the smallest to the largest",
                   fmt::format("for example -b {} -e {}", options.max_bytes, options.min_bytes));
    });
    check_rank_count(call);
    if (!launched_by_mpi()) return launch(options, call);
    return measure_on_ranks(options, call.process);
}

}  // namespace

Command bench_comm_command() {
    auto options = std::make_shared<BenchOptions>();
    return {.name = "bench comm",
            .summary = "measure how fast ranks sum gradients, beside Open MPI",
            .usage = "lockstep bench comm --np N [-b SIZE] [-e SIZE] [--beside NAME,..] [options]",
            .text = bench_help,
            .table = bench_option_table(*options),
            .run = [options](const Invocation& call) { return run(*options, call); }};
}

}  // namespace lockstep
