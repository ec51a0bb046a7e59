// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/map.hpp"

#include <algorithm>

namespace lockstep {
namespace {

std::vector<LaunchedRank> ranks_of(std::span<const RankOnHost> ranks,
                                   int host,
                                   const std::vector<int>& cpus) {
    std::vector<LaunchedRank> mine;
    for (const auto& rank : ranks)
        if (rank.host == host) mine.push_back({rank.rank, rank.local_rank, cpus, {}});
    return mine;
}

/// As `node`, but called `host`; what is of that one node only is left out.
NodeTopology renamed(const NodeTopology& node, const std::string& host) {
    if (node.host == host) return node;
    NodeTopology other = node;
    other.host = host;
    return other;
}

void add(Placement&& part, bool is_described, Placement& plan) {
    for (auto& seat : part.seats) {
        seat.host_id.clear();  // a plan outlives a boot
        seat.is_bound = false;
        if (!is_described) seat.gpu_uuid.clear();
        plan.seats.push_back(std::move(seat));
    }
    for (auto& warning : part.warnings) plan.warnings.push_back(std::move(warning));
}

Placement names_only(std::span<const HostSlots> hosts, std::span<const RankOnHost> ranks) {
    Placement plan;
    for (const auto& rank : ranks) {
        auto& seat = plan.seats.emplace_back();
        seat.rank = rank.rank;
        seat.host = hosts[static_cast<std::size_t>(rank.host)].host;
        seat.local_rank = rank.local_rank;
        seat.threads = 0;
    }
    return plan;
}

}  // namespace

Placement plan_job(std::span<const HostSlots> hosts,
                   std::span<const RankOnHost> ranks,
                   const NodeTopology* node,
                   const PlacementRules& rules) {
    if (node == nullptr) return names_only(hosts, ranks);
    Placement plan;
    for (int host = 0; host < std::ssize(hosts); ++host) {
        const auto& name = hosts[static_cast<std::size_t>(host)].host;
        const auto like = renamed(*node, name);
        add(place_on_node(like, ranks_of(ranks, host, like.allowed_cpus), rules),
            name == node->host,
            plan);
    }
    std::ranges::sort(plan.seats, {}, &RankSeat::rank);
    return plan;
}

}  // namespace lockstep
