// SPDX-License-Identifier: Apache-2.0
#include "lockstep/launch/live_placement.hpp"

#include "lockstep/cluster/launch_facts.hpp"
#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/cluster/placement.hpp"
#include "lockstep/comm/agree.hpp"
#include "lockstep/comm/gpu_selection.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/error_kind.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/split.hpp"

#include <exception>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

/// Collective. Returns the values of all ranks, by rank, on rank 0; nothing on the others.
template <class Facts>
std::vector<Facts> gathered(const Communicator& ranks,
                            const Facts& mine,
                            Facts (&read)(std::string_view, const std::string&)) {
    std::vector<Facts> all;
    for (const std::string& text : ranks.gather(serialize(mine)))
        all.push_back(read(text, "another rank's facts"));
    return all;
}

/// Collective. The operating system, MPI and the launcher on who shares a node.
void hear_witnesses(const Communicator& ranks, const Communicator& local, const RankFacts& facts) {
    agree(ranks, [&] { check_launch(facts.launch(), ranks.rank(), ranks.size()); });
    const LaunchFacts& launch = facts.launch();
    NodeWitness mine{ranks.rank(), facts.node().host_id(), 0, local.rank(), {}};
    mine.mpi_node = std::stoi(local.broadcast(std::to_string(ranks.rank())));
    if (launch.local_rank && !launch.is_heterogeneous)
        mine.launcher_local_rank = static_cast<int>(*launch.local_rank);
    const auto witnesses = gathered(ranks, mine, deserialize<NodeWitness>);
    from_root(ranks, [&] {
        check_witnesses(witnesses);
        return std::string();
    });
}

LaunchedRank launched_rank(const Communicator& ranks,
                           const Communicator& local,
                           const NodeTopology& own,
                           const PlacementRules& rules) {
    const Environment environment;
    LaunchedRank mine{ranks.rank(), local.rank(), own.allowed_cpus, {}, launcher_cpus()};
    const auto bound = parse_cpu_list(environment.text(bound_variable).value_or(""));
    mine.binds_itself = bound && *bound == own.allowed_cpus;
    if (rules.compute_on == ComputeOn::cpus) return mine;
    mine.gpus = visible_gpus(own, environment);
    if (mine.gpus) return mine;
    std::vector<std::string> usable;
    for (const GpuFacts* gpu : usable_gpus(own)) usable.push_back(gpu->pci.address);
    if (!usable.empty()) mine.gpus = std::move(usable);
    return mine;
}

/// One node's part of the job.
struct NodePart {
    NodeTopology node;  ///< view of all its ranks
    std::string rest;   ///< serialize() of its Placement without seats
    std::string seats;  ///< serialize() of each, a line each: they begin with any rank
};

/// Collective, of a node's ranks. Its first rank decides: a node has many ranks, and a topology is
/// long. Errors: those of place_on_node(), on all of them.
NodePart place_node(const Communicator& local,
                    const NodeTopology& own,
                    const LaunchedRank& mine,
                    const PlacementRules& rules) {
    const auto views = gathered(local, own, deserialize_topology);
    const auto launched = gathered(local, mine, deserialize<LaunchedRank>);
    NodePart part;
    part.node =
        deserialize_topology(from_root(local, [&] { return serialize(merge_views(views)); }));
    from_root(local, [&] {
        Placement placement = place_on_node(part.node, launched, rules);
        for (const RankSeat& seat : std::exchange(placement.seats, {}))
            part.seats += (part.seats.empty() ? "" : "\n") + serialize(seat);
        part.rest = serialize(placement);
        return std::string();
    });
    return part;
}

/// Collective. The lines that the first ranks of all nodes have.
std::vector<std::string> all_lines(const Communicator& leaders,
                                   const Communicator& local,
                                   const std::string& lines) {
    std::string all;
    if (local.is_root()) all = fmt::format("{}", fmt::join(leaders.all_gather(lines), "\n"));
    return split(local.broadcast(std::move(all)), '\n');
}

/// Collective. Every node's part, put together by rank.
Placement join_parts(const Communicator& ranks, const Communicator& local, const NodePart& part) {
    const Communicator leaders = ranks.split(local.is_root() ? 0 : 1);
    Placement plan;
    plan.seats.resize(static_cast<std::size_t>(ranks.size()));
    for (const std::string& line : all_lines(leaders, local, part.seats)) {
        const RankSeat seat = deserialize<RankSeat>(line, "another rank's seat");
        plan.seats.at(static_cast<std::size_t>(seat.rank)) = seat;
    }
    for (const std::string& line : all_lines(leaders, local, part.rest)) {
        const Placement each = deserialize_placement(line, "a node's part");
        plan.warnings.insert(plan.warnings.end(), each.warnings.begin(), each.warnings.end());
    }
    return plan;
}

EarlyBinding own_binding(const RankFacts& facts) {
    const Environment environment;
    if (!may_bind(facts.launch(), environment)) return {};
    return early_binding(facts.node(), facts.launch(), environment, launcher_cpus());
}

constexpr double gpu_deadline_s = 30;

/// Collective. The rank's seat, or none where ranks cannot be placed: checks of their own say why.
RankSeat planned_seat(const Communicator& ranks, const RankFacts& facts) try {
    const LivePlacement live =
        place_live(ranks, facts, {.gpus = SharingRule::allow, .cores = SharingRule::allow});
    return live.plan.seats[static_cast<std::size_t>(ranks.rank())];
} catch (const Error&) {
    return {};
}

}  // namespace

LivePlacement place_live(const Communicator& ranks,
                         const RankFacts& facts,
                         const PlacementRules& rules) {
    const Communicator local = ranks.split_by_node();
    agree(ranks, [&] { facts.node(); });
    const NodeTopology& own = facts.node();
    hear_witnesses(ranks, local, facts);
    const LaunchedRank mine = agree(ranks, [&] { return launched_rank(ranks, local, own, rules); });
    NodePart part = agree(ranks, [&] { return place_node(local, own, mine, rules); });
    LivePlacement live{.plan = join_parts(ranks, local, part), .reality = {}, .node = {}};
    agree(ranks, [&] { check_no_sharing(live.plan.seats, rules); });
    const RankSeat& seat = live.plan.seats[static_cast<std::size_t>(ranks.rank())];
    for (const std::string& text :
         ranks.all_gather(serialize(seat_as_it_is(part.node, mine, seat))))
        live.reality.push_back(deserialize<RankSeat>(text, "another rank's seat"));
    live.node = std::move(part.node);
    return live;
}

void check_plan(const Communicator& ranks, const RankFacts& facts, const fs::path& path) {
    PlacementRules rules;
    rules.gpus = rules.cores = SharingRule::allow;
    const LivePlacement live = place_live(ranks, facts, rules);
    from_root(ranks, [&] {
        check_against_plan(deserialize_placement(read_file(path), path.string()), live.reality);
        return std::string();
    });
}

std::map<std::string, std::string> bind_rank(const RankFacts& facts) try {
    const EarlyBinding binding = own_binding(facts);
    if (binding.memory_node) prefer_memory_of(*binding.memory_node);
    if (binding.cpus.empty() || !bind_thread(binding.cpus)) return {};
    return binding.variables;
} catch (const std::exception&) {
    return {};  // all ranks together report faults of the launch once MPI is there
}

std::map<std::string, std::string> kept_cores() {
    const Environment environment;
    if (openmp_binding(environment).empty() || environment.text(bound_variable)) return {};
    return {{bound_variable, cpu_list_text(read_node_facts().allowed_cpus)}};
}

void release_first_thread() {
    const auto bound = Environment().text(bound_variable);
    const auto cpus = parse_cpu_list(bound.value_or(""));
    if (cpus && !cpus->empty()) bind_thread(*cpus);
}

std::string binding_note(const RankFacts& facts) {
    return own_binding(facts).why_not;
}

void select_own_gpu(const Communicator& ranks, const RankFacts& facts, DoctorFacts& mine) {
    const RankSeat seat = planned_seat(ranks, facts);
    const bool is_able = mine.plan.uses_gpus && mine.program.cuda_fault.empty() &&
                         !seat.gpu.empty() && !seat.gpu_uuid.starts_with("MIG-");
    const Communicator able = ranks.split(is_able ? 0 : 1);
    if (!is_able) return;
    const auto bootstrap = make_bootstrap(able);
    try {
        mine.gpu = try_gpu({seat.gpu, seat.gpu_uuid}, *bootstrap, gpu_deadline_s).pci;
    } catch (const Error& error) {
        const bool is_anothers = kind_of(error) == ErrorKind::peer_gave_up;
        if (!is_anothers) mine.program.cuda_fault = error.what();
    }
}

}  // namespace lockstep
