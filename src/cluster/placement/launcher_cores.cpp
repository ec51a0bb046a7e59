// SPDX-License-Identifier: Apache-2.0
#include "launcher_cores.hpp"

#include "lockstep/cluster/cpu_list.hpp"
#include "lockstep/core/error.hpp"

#include "core_split.hpp"
#include "sharing.hpp"

#include <algorithm>
#include <iterator>
#include <optional>

#include <fmt/format.h>

namespace lockstep {
namespace {

/// All that the ranks of this node can have had to share out.
std::vector<int> available_to(const NodeTopology& node, std::span<const LaunchedRank> ranks) {
    std::vector<int> all = available_cpus(node, ranks.front().offered);
    for (const auto& rank : ranks) {
        std::vector<int> both;
        std::ranges::set_union(all, rank.cpus, std::back_inserter(both));
        all = std::move(both);
    }
    return all;
}

std::vector<LaunchedSet> sets_of(const NodeTopology& node, std::span<const LaunchedRank> ranks) {
    std::vector<LaunchedSet> sets;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        auto set = std::ranges::find(sets, ranks[i].cpus, &LaunchedSet::cpus);
        if (set == sets.end()) set = sets.insert(sets.end(), {ranks[i].cpus, {}});
        set->members.push_back(i);
    }
    for (auto& set : sets) {
        const bool fits = cores_within(node, set.cpus).size() >= set.members.size();
        set.binding = fits ? LauncherBinding::shared : LauncherBinding::crowded;
        if (set.members.size() == 1) set.binding = LauncherBinding::kept;
    }
    return sets;
}

RankSeat seat_of(const NodeTopology& node, const LaunchedRank& rank) {
    RankSeat seat;
    seat.rank = rank.rank;
    seat.host = node.host;
    seat.cpus = rank.cpus;
    return seat;
}

/// What the first two ranks have in common that should not: a core of sets that differ, or one set
/// that is too small for its ranks.
std::optional<Error> first_conflict(const NodeTopology& node,
                                    std::span<const LaunchedRank> ranks,
                                    const std::vector<LaunchedSet>& sets,
                                    std::size_t cores) {
    const auto said = [&](std::size_t a, std::size_t b, int cpu) {
        const auto each = static_cast<int>(cores / ranks.size());
        return shared_core(seat_of(node, ranks[a]), seat_of(node, ranks[b]), cpu, each);
    };
    for (const auto& set : sets)
        if (set.binding == LauncherBinding::crowded && !set.cpus.empty())
            return said(set.members[0], set.members[1], set.cpus.front());
    for (std::size_t a = 0; a < sets.size(); ++a)
        for (std::size_t b = a + 1; b < sets.size(); ++b) {
            const auto common = std::ranges::find_first_of(sets[a].cpus, sets[b].cpus);
            if (common == sets[a].cpus.end()) continue;
            return said(sets[a].members.front(), sets[b].members.front(), *common);
        }
    return {};
}

Error too_few_cores(const NodeTopology& node,
                    std::size_t ranks,
                    const std::vector<int>& cpus,
                    std::size_t cores) {
    return Error("E643",
                 fmt::format("{} ranks on {}, which has {} core(s) for them ({})",
                             ranks,
                             node.host,
                             cores,
                             cpu_list_text(cpus)),
                 "each rank computes with at least one core",
                 fmt::format("mpirun --map-by ppr:{0}:node, or srun --ntasks-per-node={0}; "
                             "--oversubscribe for a test",
                             cores));
}

void warn_of_conflicts(const NodeTopology& node,
                       const std::vector<LaunchedSet>& sets,
                       const Error& conflict,
                       std::vector<std::string>& warnings) {
    const auto before = warnings.size();
    for (const auto& set : sets)
        if (set.binding == LauncherBinding::crowded)
            warnings.push_back(fmt::format(
                "{}: {} ranks on cores {}, which they share; fix: fewer ranks on a node",
                node.host,
                set.members.size(),
                cpu_list_text(set.cpus)));
    if (warnings.size() == before)
        warnings.push_back(fmt::format("{}; fix: {}", conflict.what(), conflict.fix()));
}

}  // namespace

std::vector<int> available_cpus(const NodeTopology& node, const std::vector<int>& offered) {
    if (!offered.empty()) return offered;
    return node.control_group.cpus.empty() ? node.cpus : node.control_group.cpus;
}

std::vector<LaunchedSet> launched_sets(const NodeTopology& node,
                                       std::span<const LaunchedRank> ranks,
                                       const PlacementRules& rules,
                                       std::vector<std::string>& warnings) {
    auto sets = sets_of(node, ranks);
    const auto available = available_to(node, ranks);
    const auto cores = cores_within(node, available).size();
    const bool is_unbound = sets.size() == 1 && std::ranges::includes(sets[0].cpus, available);
    if (is_unbound && ranks.size() == 1) sets[0].binding = LauncherBinding::shared;
    const auto conflict = first_conflict(node, ranks, sets, cores);
    if (!conflict) return sets;
    const bool are_too_few = cores < ranks.size();
    if (rules.cores == SharingRule::refuse && are_too_few && sets.size() == 1)
        throw too_few_cores(node, ranks.size(), available, cores);
    const bool is_refused = rules.cores == SharingRule::refuse ||
                            (rules.cores == SharingRule::unless_needed && !are_too_few);
    if (is_refused) throw *conflict;
    warn_of_conflicts(node, sets, *conflict, warnings);
    return sets;
}

}  // namespace lockstep
