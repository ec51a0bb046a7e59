// SPDX-License-Identifier: Apache-2.0
// Chooses the GPU, or part of one, of each rank by one table of costs. A cost is a number whose
// digits are, the greater ones first:
//
//     hidden   the rank's CUDA_VISIBLE_DEVICES or control group does not show it: never
//     taken    as many times as it is shared; only where the user allows it
//     numa     it hangs on another NUMA node than the rank's cores
//     path     how far the nearest network port of the fabric is: between nodes all goes there
//     index    else in order
//
// A column per GPU and turn of sharing lets the same search decide which ranks share. Ports are
// chosen afterwards: they may be shared, so each seat takes the nearest, and of equally near ones
// that with the fewest seats.
//
// What must never happen: a rank computes on a GPU that it does not see, or on another rank's
// without a warning. `hidden` is only a large cost, so that the search has a full table; a rank
// that gets such a GPU is an error that names the rank (E608).
//
// Tested: cluster/placement/placement_test.cpp (near a card first, MIG, odd NUMA nodes),
// launched_ranks_test.cpp (visible GPUs, sharing).
//
// The search in that table. Giving each rank its best GPU in turn is not the best for all: the
// first may take the one that the second needs. Rows are ranks, columns are what they may get:
//
//               A    B                       in turn    0-A, 1-B    1 + 100
//     rank 0    1    2                       together   0-B, 1-A    2 + 1
//     rank 1    1  100
//
// So the search is for the least sum: one row after another is added by the shortest path of
// exchanges, where prices on rows and columns keep all costs non-negative (H. W. Kuhn, "The
// Hungarian method for the assignment problem", 1955; in the form with shortest augmenting paths).
// Beyond most_exact rows, where that would take long, each row takes the cheapest free column.
//
// What must never happen: equal nodes give unequal answers. Many costs are equal, and which of the
// equal sums a search finds first depends on its steps. So every cost gets a second digit, the
// squared distance from the diagonal, in units too small to outweigh a first digit (with_order).
// Ranks then take GPUs in order wherever sums are equal.
//
// Tested: cluster/placement/placement_test.cpp (against all permutations; order among equals).
#include "lockstep/core/error.hpp"

#include "placement/choices.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <sstream>

#include <fmt/format.h>

namespace lockstep {
namespace {

using Costs = std::vector<std::vector<std::int64_t>>;

constexpr std::size_t most_exact = 16;

/// Costs that first compare as given, then by how far a pair is off the diagonal: squares make
/// crossing pairs dearer than straight ones.
Costs with_order(const Costs& costs) {
    const auto rows = static_cast<std::int64_t>(costs.size());
    const auto columns = static_cast<std::int64_t>(costs.front().size());
    const auto scale = rows * columns * columns + 1;
    Costs ordered = costs;
    for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < columns; ++c) {
            auto& cost = ordered[static_cast<std::size_t>(r)][static_cast<std::size_t>(c)];
            cost = cost * scale + (r - c) * (r - c);
        }
    return ordered;
}

/// Potentials and the pairs so far; row and column 0 stand for none.
struct Matching {
    std::vector<std::int64_t> row_price, column_price;
    std::vector<std::size_t> row_of, before;
};

/// One step of Dijkstra's search from `column`: the nearest column not yet seen.
std::size_t extend(const Costs& costs,
                   Matching& m,
                   std::size_t column,
                   std::vector<std::int64_t>& distance,
                   std::vector<char>& is_seen) {
    const auto row = m.row_of[column];
    auto step = std::numeric_limits<std::int64_t>::max();
    std::size_t nearest = 0;
    for (std::size_t c = 1; c < distance.size(); ++c) {
        if (is_seen[c]) continue;
        const auto reduced = costs[row - 1][c - 1] - m.row_price[row] - m.column_price[c];
        if (reduced < distance[c]) {
            distance[c] = reduced;
            m.before[c] = column;
        }
        if (distance[c] < step) {
            step = distance[c];
            nearest = c;
        }
    }
    // Prices move by the step, so that the nearest column now costs nothing and no other becomes
    // negative: the next search may again take the shortest way first.
    for (std::size_t c = 0; c < distance.size(); ++c) {
        if (!is_seen[c]) {
            distance[c] -= step;
            continue;
        }
        m.row_price[m.row_of[c]] += step;
        m.column_price[c] -= step;
    }
    return nearest;
}

void add_row(const Costs& costs, Matching& m, std::size_t row) {
    std::vector<std::int64_t> distance(m.row_of.size(),
                                       std::numeric_limits<std::int64_t>::max() / 2);
    std::vector<char> is_seen(m.row_of.size(), 0);
    m.row_of[0] = row;
    std::size_t column = 0;
    do {
        is_seen[column] = 1;
        column = extend(costs, m, column, distance, is_seen);
    } while (m.row_of[column] != 0);
    // Each row on the way gives its column to the one before it.
    for (; column != 0; column = m.before[column]) m.row_of[column] = m.row_of[m.before[column]];
}

std::vector<int> exact(const Costs& costs) {
    const auto rows = costs.size(), columns = costs.front().size();
    Matching m{std::vector<std::int64_t>(rows + 1),
               std::vector<std::int64_t>(columns + 1),
               std::vector<std::size_t>(columns + 1),
               std::vector<std::size_t>(columns + 1)};
    for (std::size_t row = 1; row <= rows; ++row) add_row(costs, m, row);
    std::vector<int> column_of(rows);
    for (std::size_t c = 1; c <= columns; ++c)
        if (m.row_of[c] != 0) column_of[m.row_of[c] - 1] = static_cast<int>(c - 1);
    return column_of;
}

std::vector<int> greedy(const Costs& costs) {
    std::vector<int> column_of;
    for (const auto& row : costs) {
        int best = -1;
        for (int c = 0; c < static_cast<int>(row.size()); ++c) {
            const bool is_taken = std::ranges::find(column_of, c) != column_of.end();
            if (is_taken) continue;
            if (best < 0 || row[static_cast<std::size_t>(c)] < row[static_cast<std::size_t>(best)])
                best = c;
        }
        column_of.push_back(best);
    }
    return column_of;
}

constexpr std::int64_t cost_taken = 10000, cost_numa = 100, cost_path = 10, cost_hidden = 1 << 20;

/// The GPUs' NUMA node lies among those of the rank's cores, or one of them is unknown.
bool is_near(const NodeTopology& node, const GpuFacts& gpu, const std::vector<int>& cpus) {
    if (gpu.pci.numa_node < 0) return true;
    return std::ranges::any_of(
        cpus, [&](int cpu) { return numa_node_of(node, cpu) == gpu.pci.numa_node; });
}

/// The ports that can carry messages between nodes: active ones, only InfiniBand's if it has any.
std::vector<const RdmaPort*> fabric_ports(const NodeTopology& node) {
    std::vector<const RdmaPort*> ports = active_rdma_ports(node);
    const auto is_infiniband = [](const RdmaPort* port) {
        return port->link_layer == "InfiniBand";
    };
    if (std::ranges::any_of(ports, is_infiniband))
        std::erase_if(ports, [&](const RdmaPort* port) { return !is_infiniband(port); });
    return ports;
}

std::int64_t best_path_cost(const NodeTopology& node, const GpuFacts& gpu) {
    std::int64_t best = 0;
    bool is_first = true;
    for (const auto* port : fabric_ports(node)) {
        const auto kind = static_cast<std::int64_t>(path_between(node, gpu.pci, port->pci));
        best = is_first ? kind : std::min(best, kind);
        is_first = false;
    }
    return best * cost_path;
}

bool sees(const LaunchedRank& rank, const GpuUnit& unit) {
    if (!rank.gpus) return true;
    return std::ranges::any_of(*rank.gpus, [&](const std::string& name) {
        return name == unit.gpu->pci.address || name == unit.uuid || name == unit.gpu->uuid;
    });
}

Error too_few(const NodeTopology& node,
              std::size_t units,
              std::span<const LaunchedRank> ranks,
              const std::string& which) {
    const bool are_hidden = ranks.size() <= units;
    return Error(
        "E608",
        fmt::format("{} ranks on {} for {} GPU(s): {}", ranks.size(), node.host, units, which),
        "each rank computes on a GPU of its own",
        are_hidden ? "let every rank see all GPUs: unset CUDA_VISIBLE_DEVICES (srun "
                     "--gpus-per-node, not --gpus-per-task); --share-gpu for a test"
                   : fmt::format("mpirun --map-by ppr:{0}:node, or srun --ntasks-per-node={0} "
                                 "--gpus-per-node={0}; --share-gpu for a test",
                                 std::max<std::size_t>(units, 1)));
}

/// Columns: each unit once, and where sharing is allowed once more for each further turn.
std::vector<std::vector<std::int64_t>> cost_table(const NodeTopology& node,
                                                  std::span<const GpuUnit> units,
                                                  std::span<const LaunchedRank> ranks,
                                                  std::size_t turns) {
    std::vector<std::vector<std::int64_t>> costs;
    for (const auto& rank : ranks) {
        auto& row = costs.emplace_back();
        for (std::size_t turn = 0; turn < turns; ++turn)
            for (std::size_t u = 0; u < units.size(); ++u) {
                const auto& gpu = *units[u].gpu;
                auto cost = static_cast<std::int64_t>(turn) * cost_taken;
                cost += is_near(node, gpu, rank.cpus) ? 0 : cost_numa;
                cost += best_path_cost(node, gpu) + static_cast<std::int64_t>(u);
                row.push_back(sees(rank, units[u]) ? cost : cost_hidden);
            }
    }
    return costs;
}

PathClass path_to_cores(const NodeTopology& node, const RankSeat& seat, const RdmaPort& port) {
    const bool is_here =
        port.pci.numa_node < 0 || node.numa_nodes.size() < 2 ||
        std::ranges::find(seat.numa_nodes, port.pci.numa_node) != seat.numa_nodes.end();
    return is_here ? PathClass::node : PathClass::sys;
}

PathClass path_of(const NodeTopology& node, const RankSeat& seat, const RdmaPort& port) {
    const auto gpu = std::ranges::find(node.gpus, seat.gpu, &GpuFacts::address);
    if (seat.gpu.empty() || gpu == node.gpus.end()) return path_to_cores(node, seat, port);
    return path_between(node, gpu->pci, port.pci);
}

using Steps = std::vector<std::string>;

Steps steps_of(const std::string& path) {
    Steps steps;
    std::istringstream parts(path);
    for (std::string step; std::getline(parts, step, '/');) steps.push_back(step);
    return steps;
}

/// `common` steps are shared: the host bridge ("pci0000:16"), a root port, and then each switch's
/// upstream port. Below their last common port a device has one port of that switch above it, and
/// two more for each further switch.
PathClass class_below(const Steps& a, const Steps& b, std::size_t common) {
    constexpr std::size_t root_port = 2, one_switch = 2;
    if (common < root_port) return PathClass::phb;
    const auto deepest = std::max(a.size(), b.size()) - common;
    return deepest <= one_switch ? PathClass::pix : PathClass::pxb;
}

}  // namespace

std::vector<int> cheapest_pairs(const Costs& costs) {
    if (costs.empty()) return {};
    expect(costs.size() <= costs.front().size(), "there is a column for each row");
    const auto ordered = with_order(costs);
    return costs.size() <= most_exact ? exact(ordered) : greedy(ordered);
}

std::vector<GpuUnit> gpu_units(const NodeTopology& node) {
    std::vector<GpuUnit> units;
    for (const auto* gpu : usable_gpus(node)) {
        if (!gpu->has_mig) units.push_back({gpu, gpu->uuid});
        for (const auto& uuid : gpu->mig_uuids) units.push_back({gpu, uuid});
    }
    return units;
}

std::vector<int> choose_gpus(const NodeTopology& node,
                             std::span<const GpuUnit> units,
                             std::span<const LaunchedRank> ranks,
                             const PlacementRules& rules) {
    if (units.empty()) return std::vector<int>(ranks.size(), -1);
    const auto turns = (ranks.size() + units.size() - 1) / units.size();
    const bool may_share = rules.gpus == SharingRule::allow;
    check(turns == 1 || may_share, [&] {
        return too_few(node,
                       units.size(),
                       ranks,
                       fmt::format("ranks {} and {} would share GPU {}",
                                   ranks.front().rank,
                                   ranks[units.size()].rank,
                                   units.front().gpu->pci.address));
    });
    // A rank that sees one GPU only may have to share it although others are free.
    const auto costs = cost_table(node, units, ranks, may_share ? ranks.size() : 1);
    auto chosen = cheapest_pairs(costs);
    std::set<std::string> seen;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
        const auto column = static_cast<std::size_t>(chosen[r]);
        check(costs[r][column] < cost_hidden, [&] {
            return too_few(node,
                           units.size(),
                           ranks,
                           fmt::format("rank {} sees {}, which other ranks need, too",
                                       ranks[r].rank,
                                       ranks[r].gpus->empty()
                                           ? "none"
                                           : fmt::format("{}", fmt::join(*ranks[r].gpus, ","))));
        });
        chosen[r] = static_cast<int>(column % units.size());
    }
    return chosen;
}

void choose_ports(const NodeTopology& node, std::span<RankSeat> seats) {
    const auto ports = fabric_ports(node);
    std::vector<int> uses(ports.size());
    for (auto& seat : seats) {
        std::size_t best = ports.size();
        auto best_path = PathClass::unknown;
        for (std::size_t p = 0; p < ports.size(); ++p) {
            const auto path = path_of(node, seat, *ports[p]);
            const bool is_better =
                best == ports.size() || std::pair(path, uses[p]) < std::pair(best_path, uses[best]);
            if (!is_better) continue;
            best = p;
            best_path = path;
        }
        if (best == ports.size()) continue;
        ++uses[best];
        seat.nic = ports[best]->name();
        seat.nic_path = path_class_name(best_path);
    }
}

std::string path_class_name(PathClass path) {
    constexpr std::array<const char*, 6> names{"PIX", "PXB", "PHB", "NODE", "SYS", "-"};
    return names.at(static_cast<std::size_t>(path));
}

PathClass path_between(const NodeTopology& node, const PciPlace& a, const PciPlace& b) {
    const auto left = steps_of(a.path), right = steps_of(b.path);
    const auto end = std::ranges::mismatch(left, right).in1;
    const auto common = static_cast<std::size_t>(end - left.begin());
    if (common > 0) return class_below(left, right, common);
    if (a.numa_node == b.numa_node && a.numa_node >= 0) return PathClass::node;
    if (node.numa_nodes.size() < 2) return PathClass::node;
    const bool is_known = a.numa_node >= 0 && b.numa_node >= 0;
    return is_known ? PathClass::sys : PathClass::unknown;
}

}  // namespace lockstep
