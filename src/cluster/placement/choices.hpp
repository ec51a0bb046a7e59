// SPDX-License-Identifier: Apache-2.0
// What place_on_node() chooses from: GPUs and network ports, by their distance; and the cores that
// a launcher gave to each rank, cores of its own or one set for several, which is shared out
// evenly.
#pragma once

#include "lockstep/cluster/placement.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Returns the column of each row, each column at most once; `costs[row][column]` with no more rows
/// than columns, none negative. Among equal sums, rows and columns keep their order as far as
/// possible. Up to 16 rows it finds the smallest sum (Hungarian method, Kuhn 1955; shortest
/// augmenting paths, O(rows^2 * columns)); beyond, row by row the cheapest free column.
std::vector<int> cheapest_pairs(const std::vector<std::vector<std::int64_t>>& costs);

/// A device that a rank can compute on: a GPU, or one instance of a divided GPU.
struct GpuUnit {
    const GpuFacts* gpu = nullptr;  ///< lent by the topology
    std::string uuid;
};

/// Returns the units in order of addresses.
std::vector<GpuUnit> gpu_units(const NodeTopology& node);

/// Returns a unit for each rank, or -1 for each if the node has none. Errors: E608.
std::vector<int> choose_gpus(const NodeTopology& node,
                             std::span<const GpuUnit> units,
                             std::span<const LaunchedRank> ranks,
                             const PlacementRules& rules);

/// Chooses the nearest port for each seat; of equally near ones, that with the fewest seats so far.
void choose_ports(const NodeTopology& node, std::span<RankSeat> seats);

/// The distance between two devices, from near to far: at most one switch; several switches;
/// through the CPU's host bridge; between host bridges of one NUMA node; between NUMA nodes.
enum class PathClass { pix, pxb, phb, node, sys, unknown };

/// Returns "PIX", "PXB", "PHB", "NODE", "SYS"; "-" if it is unknown.
std::string path_class_name(PathClass path);

/// Returns the distance from the devices' real paths and NUMA nodes. If the firmware names no NUMA
/// node, devices of a node with only one count as near.
PathClass path_between(const NodeTopology& node, const PciPlace& a, const PciPlace& b);

enum class LauncherBinding {
    shared,  ///< its ranks may use one set of cores, large enough to be split here
    kept,    ///< the launcher gave it to one rank
    crowded  ///< one set, with fewer cores than ranks, permitted by the user
};

/// A set of cores, and the ranks to which the launcher gave exactly this set.
struct LaunchedSet {
    std::vector<int> cpus;
    std::vector<std::size_t> members;  ///< indices into the ranks
    LauncherBinding binding = LauncherBinding::shared;
};

/// Returns the cores under a launcher that binds nothing: those it may use itself, else those of
/// the job's control group, else the whole node.
std::vector<int> available_cpus(const NodeTopology& node, const std::vector<int>& offered);

/// Returns the sets of cores, in order of their first ranks. `warnings`: for cores that are shared
/// because the rules permit it. Errors: E609 cores that the launcher gave twice, E643 a node with
/// fewer cores than ranks; both only if rules.cores refuses.
std::vector<LaunchedSet> launched_sets(const NodeTopology& node,
                                       std::span<const LaunchedRank> ranks,
                                       const PlacementRules& rules,
                                       std::vector<std::string>& warnings);

/// Returns the cores within `cpus`, each with its hardware threads in `cpus`, in Open MPI's order:
/// by socket, NUMA node, cache, first CPU.
std::vector<std::vector<int>> cores_within(const NodeTopology& node, const std::vector<int>& cpus);

/// Returns `each` neighbouring cores for every one of `shares`, as indices into `cores`, spread
/// over caches and packed inside one. If possible none crosses a cache, else none a NUMA node, else
/// none a socket. Needs shares * each <= cores.
std::vector<std::vector<int>> split_cores(const NodeTopology& node,
                                          std::span<const std::vector<int>> cores,
                                          int shares,
                                          int each);

}  // namespace lockstep
