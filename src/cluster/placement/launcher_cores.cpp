// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/launch_facts.hpp"
#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/cluster/placement.hpp"
#include "lockstep/core/control_group.hpp"
#include "lockstep/core/error.hpp"

#include "placement/choices.hpp"
#include "topology/topology_readers.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>

#include <fmt/format.h>

namespace lockstep {
namespace {

/// Returns the system's name of the host, or the plan's if there is none.
const std::string& host_of(const RankSeat& seat) {
    return seat.host_id.empty() ? seat.host : seat.host_id;
}

void check_gpus(std::span<const RankSeat> seats) {
    std::map<std::pair<std::string, std::string>, int> owner;
    for (const auto& seat : seats) {
        const auto& name = seat.gpu_uuid.empty() ? seat.gpu : seat.gpu_uuid;
        if (name.empty()) continue;
        const auto [found, is_new] = owner.emplace(std::pair(host_of(seat), name), seat.rank);
        check(is_new, [&] {
            return Error("E608",
                         fmt::format("ranks {} and {} are on one GPU of {}: {} ({})",
                                     found->second,
                                     seat.rank,
                                     seat.host,
                                     seat.gpu,
                                     name),
                         "each rank computes on a GPU of its own, and NCCL refuses two on one",
                         "let every rank see all GPUs of its node (srun --gpus-per-node, not "
                         "--gpus-per-task; unset CUDA_VISIBLE_DEVICES), and start no more ranks "
                         "on a node than it has GPUs");
        });
    }
}

/// E609. `each`: cores that each rank could have, for the line that would be right.
Error shared_core(const RankSeat& first, const RankSeat& second, int cpu, int each) {
    const std::string variable = openmp_binding(Environment());
    return Error("E609",
                 fmt::format("ranks {} and {} share core {} of {} (cores {} and {})",
                             first.rank,
                             second.rank,
                             cpu,
                             second.host,
                             cpu_list_text(first.cpus),
                             cpu_list_text(second.cpus)),
                 "each runs at a fraction of its speed, and all others wait for them",
                 variable.empty()
                     ? fmt::format("mpirun --bind-to core --map-by slot:PE={0}, or srun "
                                   "--cpus-per-task={0} --cpu-bind=cores; --bind-to none lets "
                                   "lockstep bind the ranks",
                                   each)
                     : fmt::format("unset {}, which makes OpenMP bind the ranks", variable));
}

void check_cores(std::span<const RankSeat> seats) {
    std::map<std::pair<std::string, int>, const RankSeat*> owner;
    for (const auto& seat : seats) {
        for (const int cpu : seat.cpus) {
            const auto [found, is_new] = owner.emplace(std::pair(host_of(seat), cpu), &seat);
            check(is_new, [&] {
                return shared_core(*found->second, seat, cpu, std::max(1, seat.threads));
            });
        }
    }
}

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
    return {.rank = rank.rank, .host = node.host, .cpus = rank.cpus};
}

/// Returns the first forbidden sharing of two ranks: a core of sets that differ, or one set that is
/// too small for its ranks.
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
    std::vector<int> even;
    const auto count = static_cast<int>(cores.size());
    for (int share = 0; share < shares; ++share) even.push_back(share * count / shares);
    return even;
}

}  // namespace

void check_no_sharing(std::span<const RankSeat> seats, const PlacementRules& rules) {
    if (rules.gpus == SharingRule::refuse) check_gpus(seats);
    if (rules.cores == SharingRule::refuse) check_cores(seats);
}

void check_witnesses(std::span<const NodeWitness> witnesses) {
    std::map<std::string, int> node_of_host, ranks_of_host;
    std::map<int, std::string> host_of_node;
    for (const auto& seen : witnesses) {
        const int expected = ranks_of_host[seen.host_id]++;
        const auto node = node_of_host.emplace(seen.host_id, seen.mpi_node).first->second;
        const auto& host = host_of_node.emplace(seen.mpi_node, seen.host_id).first->second;
        const bool agrees = node == seen.mpi_node && host == seen.host_id &&
                            expected == seen.mpi_local_rank &&
                            seen.launcher_local_rank.value_or(expected) == expected;
        check(agrees, [&] {
            return Error(
                "E646",
                fmt::format("rank {}: the system says {} and local rank {}, MPI says the node of "
                            "rank {} and local rank {}, the launcher says local rank {}",
                            seen.rank,
                            seen.host_id,
                            expected,
                            seen.mpi_node,
                            seen.mpi_local_rank,
                            seen.launcher_local_rank ? std::to_string(*seen.launcher_local_rank)
                                                     : "nothing"),
                "ranks would take each other's cores and GPUs",
                "start from a clean shell (unset ${!OMPI_COMM_WORLD_*} ${!SLURM_*}); give each "
                "container its host's name (--uts=host) or a name of its own");
        });
    }
}

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

std::vector<int> launcher_cpus(const std::filesystem::path& root) {
    const auto parent = value_of(text_of(root / "proc/self/status"), "PPid");
    if (parent.empty()) return {};
    const auto above = root / "proc" / parent;
    const std::string name = text_of(above / "comm");
    if (std::ranges::count(mpirun_names, name) + std::ranges::count(mpi_daemon_names, name) == 0)
        return {};
    const auto cpus = value_of(text_of(above / "status"), "Cpus_allowed_list");
    return parse_cpu_list(cpus).value_or(std::vector<int>{});
}

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
