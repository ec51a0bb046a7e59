// SPDX-License-Identifier: Apache-2.0
// Assigns GPU, cores, communication core and network port to each rank of a node. Scarce resources
// are chosen first, and all later ones stay near them:
//
//     GPUs  ->  cores, on the NUMA node of the rank's GPU  ->  threads  ->  network port, nearest
//               (even shares of neighbours, or those the                    to the GPU
//               launcher gave)
//
//     socket 0   GPU 0  GPU 1   mlx5_0        rank 0: GPU 0, cores 0-3,  mlx5_0
//                cores 0-7                    rank 1: GPU 1, cores 4-7,  mlx5_0
//     socket 1   GPU 2          mlx5_1        rank 2: GPU 2, cores 8-11, mlx5_1
//                cores 8-15                   (12-15 stay idle, and a warning says so: see below)
//
// It is a pure function of the known facts about the node and its ranks. Each rank evaluates it for
// its own node and must get the same result as its neighbours; `lockstep map` evaluates it for a
// node that does not exist.
//
// What must never happen:
// - Ranks get different numbers of cores and so of threads: the number of threads decides the bits
//   of a sum inside a kernel. An even share that leaves cores idle is the smaller evil.
// - Two ranks share a core or a GPU and nobody says so: it is an error, or a rule that the user
//   gave.
// - Cores that a launcher bound are changed: another tool decided that, perhaps for several jobs.
// - The answer depends on the order of a hash or of pointers: all choices go by rank and by
//   position.
//
// Tested: cluster/placement/placement_test.cpp on nodes described in cluster/topologies (and one
// property over random ones), launched_ranks_test.cpp.
#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/cluster/placement.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"

#include "placement/choices.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include <fmt/format.h>

namespace lockstep {
namespace {

using Cores = std::vector<std::vector<int>>;

std::vector<int> numa_nodes_of(const NodeTopology& node, const std::vector<int>& cpus) {
    std::set<int> numa;
    for (const int cpu : cpus) numa.insert(numa_node_of(node, cpu));
    numa.erase(-1);
    return {numa.begin(), numa.end()};
}

std::vector<RankSeat> blank_seats(const NodeTopology& node, std::span<const LaunchedRank> ranks) {
    std::vector<RankSeat> seats;
    for (const auto& rank : ranks)
        seats.push_back({.rank = rank.rank,
                         .host = node.host,
                         .host_id = node.host_id(),
                         .local_rank = rank.local_rank,
                         .cpus = rank.cpus});
    return seats;
}

void give_gpus(std::span<const GpuUnit> units,
               const std::vector<int>& chosen,
               std::span<RankSeat> seats) {
    for (std::size_t i = 0; i < seats.size(); ++i) {
        if (chosen[i] < 0) continue;
        const auto& unit = units[static_cast<std::size_t>(chosen[i])];
        seats[i].gpu = unit.gpu->pci.address;
        seats[i].gpu_uuid = unit.uuid;
        seats[i].gpu_model = unit.gpu->model;
    }
}

/// The CPUs next to a seat's GPU; empty where nobody knows.
std::vector<int> local_cpus(const NodeTopology& node, const RankSeat& seat) {
    const auto gpu = std::ranges::find(node.gpus, seat.gpu, &GpuFacts::address);
    if (seat.gpu.empty() || gpu == node.gpus.end()) return {};
    const auto numa = std::ranges::find(node.numa_nodes, gpu->pci.numa_node, &NumaNode::id);
    if (numa != node.numa_nodes.end()) return numa->cpus;
    return gpu->pci.cpus;
}

/// Seats that share out one set of cores.
struct SeatGroup {
    Cores cores;
    std::vector<RankSeat*> seats;
};

bool are_enough(const std::vector<SeatGroup>& groups) {
    std::set<int> seen;
    for (const auto& group : groups) {
        if (group.cores.size() < group.seats.size()) return false;
        for (const auto& core : group.cores)
            if (!seen.insert(core.front()).second) return false;
    }
    return true;
}

/// By the cores next to their GPUs; all in one group where those are unknown or too few.
std::vector<SeatGroup> groups_of(const NodeTopology& node,
                                 const std::vector<int>& pool,
                                 const std::vector<RankSeat*>& seats) {
    std::map<std::vector<int>, SeatGroup> by_cpus;
    for (auto* seat : seats) {
        std::vector<int> near;
        std::ranges::set_intersection(local_cpus(node, *seat), pool, std::back_inserter(near));
        if (near.empty()) near = pool;
        auto& group = by_cpus[near];
        if (group.seats.empty()) group.cores = cores_within(node, near);
        group.seats.push_back(seat);
    }
    std::vector<SeatGroup> groups;
    for (auto& [cpus, group] : by_cpus) groups.push_back(std::move(group));
    if (are_enough(groups)) return groups;
    return {{cores_within(node, pool), seats}};
}

bool keeps_comm_core(const RankSeat& seat, std::size_t cores, const PlacementRules& rules) {
    if (cores < 2 || rules.comm_core == CommCore::none) return false;
    return rules.comm_core == CommCore::reserve || !seat.gpu.empty();
}

/// The same number for every seat: the number of threads decides bits, so ranks must not differ.
int cores_each(const std::vector<SeatGroup>& groups, const PlacementRules& rules) {
    std::size_t each = groups.front().cores.size();
    for (const auto& group : groups) each = std::min(each, group.cores.size() / group.seats.size());
    if (rules.threads <= 0 || rules.siblings == SiblingUse::all_threads)
        return static_cast<int>(each);
    const bool keeps = keeps_comm_core(*groups.front().seats.front(), each, rules);
    return std::min(static_cast<int>(each), rules.threads + (keeps ? 1 : 0));
}

void give_cores(const NodeTopology& node, const SeatGroup& group, int each, SiblingUse siblings) {
    const auto split = split_cores(node, group.cores, static_cast<int>(group.seats.size()), each);
    for (std::size_t i = 0; i < split.size(); ++i) {
        auto& cpus = group.seats[i]->cpus;
        cpus.clear();
        for (const int index : split[i]) {
            const auto& core = group.cores[static_cast<std::size_t>(index)];
            const auto end = siblings == SiblingUse::all_threads ? core.end() : core.begin() + 1;
            cpus.insert(cpus.end(), core.begin(), end);
        }
        std::ranges::sort(cpus);
    }
}

void share_out(const NodeTopology& node,
               const std::vector<RankSeat*>& seats,
               const PlacementRules& rules,
               std::vector<std::string>& warnings) {
    const auto pool = seats.front()->cpus;
    const auto groups = groups_of(node, pool, seats);
    const int each = cores_each(groups, rules);
    for (const auto& group : groups) give_cores(node, group, each, rules.siblings);
    const auto all = static_cast<int>(cores_within(node, pool).size());
    const auto used = each * static_cast<int>(seats.size());
    if (used == all || rules.threads > 0) return;
    warnings.push_back(fmt::format(
        "{}: {} of {} cores stay idle: {} rank(s) get {} each, {}; fix: another number "
        "of ranks on a node, if those cores are wanted",
        node.host,
        all - used,
        all,
        seats.size(),
        each,
        groups.size() > 1 || seats.front()->gpu.empty() ? "all the same" : "next to their GPUs"));
}

void finish_seat(const NodeTopology& node, const PlacementRules& rules, RankSeat& seat) {
    const auto cores = cores_within(node, seat.cpus);
    const bool keeps = keeps_comm_core(seat, cores.size(), rules);
    if (keeps) seat.comm_cpu = cores.back().front();
    const auto units = rules.siblings == SiblingUse::all_threads ? seat.cpus.size() : cores.size();
    const int free = static_cast<int>(units) - (keeps ? 1 : 0);
    seat.threads = rules.threads > 0 ? rules.threads : std::max(1, free);
    seat.numa_nodes = numa_nodes_of(node, seat.cpus);
}

void keep_or_share(const NodeTopology& node,
                   std::span<const LaunchedRank> ranks,
                   const PlacementRules& rules,
                   Placement& placement) {
    for (const auto& set : launched_sets(node, ranks, rules, placement.warnings)) {
        std::vector<RankSeat*> seats;
        for (const auto i : set.members) {
            seats.push_back(&placement.seats[i]);
            seats.back()->is_bound = set.binding == LauncherBinding::kept && !ranks[i].binds_itself;
        }
        if (set.binding == LauncherBinding::shared)
            share_out(node, seats, rules, placement.warnings);
    }
}

void warn_of_far_cores(const NodeTopology& node,
                       const RankSeat& seat,
                       std::vector<std::string>& warnings) {
    const auto near = local_cpus(node, seat);
    if (near.empty() || !seat.is_bound) return;
    const auto here = std::ranges::count_if(
        seat.cpus, [&](int cpu) { return std::ranges::binary_search(near, cpu); });
    if (2 * here >= std::ssize(seat.cpus)) return;
    warnings.push_back(
        fmt::format("rank {} is bound to cores {}, far from its GPU {}; fix: cores among {}, or "
                    "--bind-to none and lockstep chooses them",
                    seat.rank,
                    cpu_list_text(seat.cpus),
                    seat.gpu,
                    cpu_list_text(near)));
}

void warn_of_too_many_threads(const NodeTopology& node,
                              std::span<const RankSeat> seats,
                              std::vector<std::string>& warnings) {
    std::vector<int> crowded;
    const RankSeat* first = nullptr;
    for (const auto& seat : seats) {
        if (seat.threads <= static_cast<int>(seat.cpus.size())) continue;
        if (crowded.empty()) first = &seat;
        crowded.push_back(seat.rank);
    }
    if (crowded.empty()) return;
    warnings.push_back(
        fmt::format("{} of {}: {} threads on {} core(s); fix: fewer --threads, or "
                    "fewer ranks on a node",
                    ranks_text(crowded),
                    node.host,
                    first->threads,
                    first->cpus.size()));
}

void warn_of_idle_gpus(const NodeTopology& node,
                       std::span<const GpuUnit> units,
                       std::span<const RankSeat> seats,
                       std::vector<std::string>& warnings) {
    std::set<std::string> idle;
    for (const auto& unit : units) {
        const bool is_used = std::ranges::any_of(seats, [&](const RankSeat& seat) {
            return seat.gpu == unit.gpu->pci.address && seat.gpu_uuid == unit.uuid;
        });
        if (!is_used) idle.insert(unit.gpu->has_mig ? unit.uuid : unit.gpu->pci.address);
    }
    if (idle.empty()) return;
    warnings.push_back(fmt::format("{}: no rank uses GPU {}; fix: {} ranks on a node",
                                   node.host,
                                   fmt::join(idle, ", "),
                                   units.size()));
}

Error no_such_gpu(const std::string& list, const std::string& why) {
    return Error("E648",
                 fmt::format("CUDA_VISIBLE_DEVICES is '{}'", list),
                 why,
                 "unset it, or name GPUs as `nvidia-smi -L` shows their UUIDs");
}

/// CUDA numbers GPUs fastest first unless told otherwise: then only equal ones are in PCI's order.
bool knows_order(std::span<const GpuFacts* const> gpus, const Environment& environment) {
    if (environment.text("CUDA_DEVICE_ORDER") == "PCI_BUS_ID") return true;
    return std::ranges::all_of(
        gpus, [&](const GpuFacts* gpu) { return gpu->model == gpus.front()->model; });
}

/// The unit that `word` is the beginning of the UUID of.
std::string unit_named(const NodeTopology& node, const std::string& word, const std::string& list) {
    std::vector<std::string> found;
    for (const auto& unit : gpu_units(node))
        if (unit.uuid.starts_with(word)) found.push_back(unit.uuid);
    for (const auto* gpu : usable_gpus(node))
        if (gpu->has_mig && gpu->uuid.starts_with(word)) found.push_back(gpu->uuid);
    check(found.size() == 1, [&] {
        return no_such_gpu(list,
                           fmt::format("'{}' begins {} UUIDs of this node", word, found.size()));
    });
    return found.front();
}

}  // namespace

std::optional<std::vector<std::string>> visible_gpus(const NodeTopology& node,
                                                     const Environment& environment) {
    const auto list = environment.text("CUDA_VISIBLE_DEVICES");
    if (!list) return {};
    const auto gpus = usable_gpus(node);
    std::vector<std::string> visible;
    if (gpus.empty()) return visible;
    bool has_mig = false;
    std::istringstream words(*list);
    for (std::string word; std::getline(words, word, ',');) {
        if (word == "-1" || word == "NoDevFiles") break;  // CUDA looks no further
        const auto index = parse_integer(word);
        if (!index) {
            visible.push_back(unit_named(node, word, *list));
            has_mig = has_mig || word.starts_with("MIG");
            continue;
        }
        check(*index >= 0 && *index < static_cast<std::int64_t>(gpus.size()), [&] {
            return no_such_gpu(
                *list, fmt::format("index {} is not among the {} GPUs", *index, gpus.size()));
        });
        check(knows_order(gpus, environment), [&] {
            return no_such_gpu(*list,
                               "the GPUs differ, and without CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA "
                               "numbers them by speed");
        });
        const GpuFacts& gpu = *gpus[static_cast<std::size_t>(*index)];
        visible.push_back(gpu.uuid.empty() ? gpu.pci.address : gpu.uuid);
    }
    check(!has_mig || std::ranges::all_of(visible,
                                          [](const auto& name) { return name.starts_with("MIG"); }),
          [&] { return no_such_gpu(*list, "CUDA takes either GPUs or MIG instances, not both"); });
    return visible;
}

NodeTopology merge_views(std::span<const NodeTopology> views) {
    NodeTopology node = views.front();
    for (const auto& view : views.subspan(1)) {
        for (const auto* gpu : usable_gpus(view)) {
            const auto known = std::ranges::find(node.gpus, gpu->pci.address, &GpuFacts::address);
            if (known == node.gpus.end())
                node.gpus.push_back(*gpu);
            else if (!known->has_driver)
                *known = *gpu;
        }
    }
    std::ranges::sort(node.gpus, {}, &GpuFacts::address);
    return node;
}

Placement place_on_node(const NodeTopology& node,
                        std::span<const LaunchedRank> ranks,
                        const PlacementRules& rules) {
    if (ranks.empty()) return {};
    Placement placement{blank_seats(node, ranks), {}};
    auto& seats = placement.seats;
    const auto units =
        rules.compute_on == ComputeOn::gpus ? gpu_units(node) : std::vector<GpuUnit>{};
    give_gpus(units, choose_gpus(node, units, ranks, rules), seats);
    keep_or_share(node, ranks, rules, placement);
    for (auto& seat : seats) {
        finish_seat(node, rules, seat);
        warn_of_far_cores(node, seat, placement.warnings);
    }
    choose_ports(node, seats);
    warn_of_too_many_threads(node, seats, placement.warnings);
    warn_of_idle_gpus(node, units, seats, placement.warnings);
    return placement;
}

RankSeat seat_as_it_is(const NodeTopology& node, const LaunchedRank& rank, RankSeat planned) {
    planned.cpus = rank.cpus;
    planned.numa_nodes = numa_nodes_of(node, rank.cpus);
    const bool is_everything = std::ranges::includes(rank.cpus, available_cpus(node, rank.offered));
    planned.is_bound = !rank.binds_itself && !is_everything;
    const bool has_comm_cpu =
        planned.comm_cpu && std::ranges::binary_search(rank.cpus, *planned.comm_cpu);
    if (!has_comm_cpu) planned.comm_cpu.reset();
    return planned;
}

}  // namespace lockstep
