// SPDX-License-Identifier: Apache-2.0
#include "core_split.hpp"

#include "lockstep/core/error.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <tuple>

namespace lockstep {
namespace {

using Groups = std::vector<std::vector<int>>;

/// Returns the group that holds `cpu`, by the first CPU of it; -1 if none does.
int group_of(const Groups& groups, int cpu) {
    for (const auto& group : groups)
        if (std::ranges::binary_search(group, cpu)) return group.front();
    return -1;
}

/// Returns the end of each core's group: one past the last core that shares it.
std::vector<int> group_ends(std::span<const std::vector<int>> cores, const Groups& groups) {
    const auto count = static_cast<int>(cores.size());
    std::vector<int> ends(cores.size(), count);
    for (int i = count - 2; i >= 0; --i) {
        const auto at = static_cast<std::size_t>(i);
        const bool goes_on =
            group_of(groups, cores[at].front()) == group_of(groups, cores[at + 1].front());
        ends[at] = goes_on ? ends[at + 1] : i + 1;
    }
    return ends;
}

/// First cores of the shares, none of which reaches over an end; nothing if they do not fit so.
std::optional<std::vector<int>> starts_within(const std::vector<int>& ends, int shares, int each) {
    const auto count = static_cast<int>(ends.size());
    std::vector<int> starts;
    int next = 0;
    for (int share = 0; share < shares; ++share) {
        int start = std::max(next, share * count / shares);
        while (start < count && start + each > ends[static_cast<std::size_t>(start)])
            start = ends[static_cast<std::size_t>(start)];
        if (start + each > count) return {};
        starts.push_back(start);
        next = start + each;
    }
    return starts;
}

/// Moves shares together at the beginning of their groups: launchers fill an object so.
void pack(const std::vector<int>& ends, int each, std::vector<int>& starts) {
    int group_begin = 0, next = 0;
    for (int& start : starts) {
        while (ends[static_cast<std::size_t>(group_begin)] <= start)
            group_begin = ends[static_cast<std::size_t>(group_begin)];
        start = std::max(group_begin, next);
        next = start + each;
    }
}

std::vector<int> even_starts(int cores, int shares) {
    std::vector<int> starts;
    for (int share = 0; share < shares; ++share) starts.push_back(share * cores / shares);
    return starts;
}

std::vector<int> best_starts(const NodeTopology& node,
                             std::span<const std::vector<int>> cores,
                             int shares,
                             int each) {
    Groups numa;
    for (const auto& one : node.numa_nodes)
        if (!one.cpus.empty()) numa.push_back(one.cpus);
    for (const auto* groups : {&node.l3_groups, static_cast<const Groups*>(&numa), &node.sockets}) {
        const auto ends = group_ends(cores, *groups);
        auto starts = starts_within(ends, shares, each);
        if (!starts) continue;
        pack(ends, each, *starts);
        return *starts;
    }
    return even_starts(static_cast<int>(cores.size()), shares);
}

}  // namespace

std::vector<std::vector<int>> cores_within(const NodeTopology& node, const std::vector<int>& cpus) {
    std::vector<std::vector<int>> cores;
    for (const auto& core : node.cores) {
        std::vector<int> mine;
        std::ranges::set_intersection(core, cpus, std::back_inserter(mine));
        if (!mine.empty()) cores.push_back(std::move(mine));
    }
    std::ranges::stable_sort(cores, {}, [&](const std::vector<int>& core) {
        const int cpu = core.front();
        return std::tuple(group_of(node.sockets, cpu),
                          numa_node_of(node, cpu),
                          group_of(node.l3_groups, cpu),
                          cpu);
    });
    return cores;
}

std::vector<std::vector<int>> split_cores(const NodeTopology& node,
                                          std::span<const std::vector<int>> cores,
                                          int shares,
                                          int each) {
    expect(shares * each <= static_cast<int>(cores.size()), "there are cores for each share");
    std::vector<std::vector<int>> split;
    for (const int start : best_starts(node, cores, shares, each)) {
        auto& share = split.emplace_back(static_cast<std::size_t>(each));
        std::iota(share.begin(), share.end(), start);
    }
    return split;
}

}  // namespace lockstep
