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

/// Collective. Everyone's, by rank, on rank 0; nothing on the others.
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
    const auto witnesses = gathered(ranks, mine, deserialize_witness);
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
    NodeTopology node;      ///< as all its ranks see it
    std::string placement;  ///< lines of JSON: its Placement without seats, then each seat
};

std::string lines_of(Placement placement) {
    std::string lines;
    for (const RankSeat& seat : placement.seats) lines += serialize(seat) + '\n';
    placement.seats.clear();
    return serialize(placement) + '\n' + lines;
}

/// Calls `take` with each line of `text`, whose lines are all ended.
template <class Take>
void for_each_line(std::string_view text, Take&& take) {
    for (std::size_t end = 0; !text.empty(); text.remove_prefix(end + 1)) {
        end = text.find('\n');
        take(text.substr(0, end));
    }
}

/// Collective, of a node's ranks. Its first rank decides: a node has many ranks, and a topology is
/// long. Errors: those of place_on_node(), on all of them.
NodePart place_node(const Communicator& local,
                    const NodeTopology& own,
                    const LaunchedRank& mine,
                    const PlacementRules& rules) {
    const auto views = gathered(local, own, deserialize_topology);
    const auto launched = gathered(local, mine, deserialize_launched_rank);
    NodePart part;
    part.node =
        deserialize_topology(from_root(local, [&] { return serialize(merge_views(views)); }));
    part.placement =
        from_root(local, [&] { return lines_of(place_on_node(part.node, launched, rules)); });
    return part;
}

/// Collective. Every node's part, put together by rank.
Placement join_parts(const Communicator& ranks, const Communicator& local, const NodePart& part) {
    const Communicator leaders = ranks.split(local.is_root() ? 0 : 1);
    std::string parts, seats;
    if (local.is_root())
        for (const std::string& text : leaders.all_gather(part.placement)) {
            const std::size_t end = text.find('\n') + 1;
            parts += text.substr(0, end);
            seats += text.substr(end);
        }
    Placement plan;
    plan.seats.resize(static_cast<std::size_t>(ranks.size()));
    for_each_line(local.broadcast(std::move(seats)), [&](std::string_view line) {
        const RankSeat seat = deserialize_seat(line, "another rank's seat");
        plan.seats.at(static_cast<std::size_t>(seat.rank)) = seat;
    });
    for_each_line(local.broadcast(std::move(parts)), [&](std::string_view line) {
        const Placement each = deserialize_placement(line, "a node's part");
        plan.warnings.insert(plan.warnings.end(), each.warnings.begin(), each.warnings.end());
    });
    return plan;
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
        live.reality.push_back(deserialize_seat(text, "another rank's seat"));
    live.node = std::move(part.node);
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
