// SPDX-License-Identifier: Apache-2.0
// GPUs and network ports for the ranks of one node.
#pragma once

#include "lockstep/cluster/placement.hpp"
#include "lockstep/cluster/topology.hpp"

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

}  // namespace lockstep
