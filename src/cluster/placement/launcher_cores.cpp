// SPDX-License-Identifier: Apache-2.0
#include "launcher_cores.hpp"

#include "lockstep/cluster/cpu_list.hpp"
#include "lockstep/core/error.hpp"

#include "core_split.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {
namespace {

/// What a launcher that binds nothing leaves: the job's control group, or the whole node.
std::vector<int> available(const NodeTopology& node) {
    return node.control_group.cpus.empty() ? node.cpus : node.control_group.cpus;
}

bool are_alike(std::span<const LaunchedRank> ranks) {
    return std::ranges::all_of(
        ranks, [&](const LaunchedRank& rank) { return rank.cpus == ranks.front().cpus; });
}

void refuse_bound_twice(const NodeTopology& node, std::span<const LaunchedRank> ranks) {
    std::vector<RankSeat> seats;
    const auto cores = cores_within(node, available(node)).size();
    for (const auto& rank : ranks) {
        auto& seat = seats.emplace_back();
        seat.rank = rank.rank;
        seat.host = node.host;
        seat.cpus = rank.cpus;
        seat.threads = static_cast<int>(cores / ranks.size());
    }
    check_no_sharing(seats, {.gpus = SharingRule::allow});
}

Error too_few_cores(const NodeTopology& node, std::size_t ranks, std::size_t cores) {
    return Error("E643",
                 fmt::format("{} ranks on {}, which has {} core(s) for them ({})",
                             ranks,
                             node.host,
                             cores,
                             cpu_list_text(available(node))),
                 "each rank computes with at least one core",
                 fmt::format("mpirun --map-by ppr:{0}:node, or srun --ntasks-per-node={0}; "
                             "--oversubscribe for a test",
                             cores));
}

}  // namespace

LauncherBinding binding_of(const NodeTopology& node,
                           std::span<const LaunchedRank> ranks,
                           const PlacementRules& rules) {
    const bool may_share = rules.cores == SharingRule::allow;
    if (!are_alike(ranks)) {
        if (!may_share) refuse_bound_twice(node, ranks);
        return LauncherBinding::kept;
    }
    const auto& cpus = ranks.front().cpus;
    const bool is_everything = std::ranges::includes(cpus, available(node));
    if (ranks.size() == 1) return is_everything ? LauncherBinding::shared : LauncherBinding::kept;
    const auto cores = cores_within(node, cpus).size();
    if (cores >= ranks.size()) return LauncherBinding::shared;
    if (may_share) return LauncherBinding::crowded;
    if (!is_everything && cores_within(node, available(node)).size() >= ranks.size())
        refuse_bound_twice(node, ranks);
    throw too_few_cores(node, ranks.size(), cores);
}

}  // namespace lockstep
