// SPDX-License-Identifier: Apache-2.0
#include "lockstep/launch/live_placement.hpp"

#include "lockstep/cluster/cpu_list.hpp"
#include "lockstep/cluster/early_binding.hpp"
#include "lockstep/cluster/launch_facts.hpp"
#include "lockstep/cluster/map.hpp"
#include "lockstep/comm/agree.hpp"
#include "lockstep/core/files.hpp"

#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

/// Collective. Everyone's, by rank.
template <class Facts>
std::vector<Facts> everyones(const Communicator& ranks,
                             const Facts& mine,
                             Facts (&read)(std::string_view, const std::string&)) {
    std::vector<Facts> all;
    for (const std::string& text : ranks.all_gather(serialize(mine)))
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
    const auto witnesses = everyones(ranks, mine, deserialize_witness);
    agree(ranks, [&] { check_witnesses(witnesses); });
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

/// Collective. Every node's part, put together by rank.
LivePlacement gather_parts(const Communicator& ranks, const Communicator& local, Placement part) {
    LivePlacement live;
    const RankSeat& mine = part.seats[static_cast<std::size_t>(local.rank())];
    live.plan.seats = everyones(ranks, mine, deserialize_seat);
    if (local.rank() != 0) part.warnings.clear();
    part.seats.clear();
    for (const Placement& each : everyones(ranks, part, deserialize_placement))
        live.plan.warnings.insert(
            live.plan.warnings.end(), each.warnings.begin(), each.warnings.end());
    return live;
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
    const auto launched = everyones(local, mine, deserialize_launched_rank);
    const NodeTopology node = merge_views(everyones(local, own, deserialize_topology));
    LivePlacement live = gather_parts(
        ranks, local, agree(ranks, [&] { return place_on_node(node, launched, rules); }));
    agree(ranks, [&] { check_no_sharing(live.plan.seats, rules); });
    const RankSeat& seat = live.plan.seats[static_cast<std::size_t>(ranks.rank())];
    live.reality = everyones(ranks, seat_as_it_is(node, mine, seat), deserialize_seat);
    live.node = node;
    return live;
}

void check_plan(const Communicator& ranks,
                const RankFacts& facts,
                const std::filesystem::path& path) {
    PlacementRules rules;
    rules.gpus = rules.cores = SharingRule::allow;
    const LivePlacement live = place_live(ranks, facts, rules);
    from_root(ranks, [&] {
        check_against_plan(deserialize_placement(read_file(path), path.string()), live.reality);
        return std::string();
    });
}

}  // namespace lockstep
