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

/// Row r gets column result[r], each column at most once; `costs[row][column]` with no more rows
/// than columns, none negative. Among equal sums, rows and columns keep their order as far as it
/// goes. Up to 16 rows the least sum (Hungarian method, Kuhn 1955; shortest augmenting paths,
/// O(rows^2 * columns)); beyond, row by row the cheapest column left.
std::vector<int> cheapest_pairs(const std::vector<std::vector<std::int64_t>>& costs);

/// What a rank can compute on: a GPU, or one instance of a GPU that is cut up.
struct GpuUnit {
    const GpuFacts* gpu = nullptr;  ///< lent by the topology
    std::string uuid;
};

/// In order of addresses.
std::vector<GpuUnit> gpu_units(const NodeTopology& node);

/// Ports that can carry messages between nodes: up, and of InfiniBand where there is any.
std::vector<const RdmaPort*> fabric_ports(const NodeTopology& node);

/// A unit for each rank, or -1 for each where the node has none. Errors: E608.
std::vector<int> choose_gpus(const NodeTopology& node,
                             std::span<const GpuUnit> units,
                             std::span<const LaunchedRank> ranks,
                             const PlacementRules& rules);

/// The nearest port for each seat; of equally near ones, that with the fewest seats so far.
void choose_ports(const NodeTopology& node, std::span<RankSeat> seats);

/// From near to far: direct links; at most one switch; several switches; through the CPU's host
/// bridge; between host bridges of one NUMA node; between NUMA nodes.
enum class PathKind { nvlink, pix, pxb, phb, node, sys, unknown };

/// The distance between two devices.
struct PathClass {
    PathKind kind = PathKind::unknown;
    int nvlinks = 0;  ///< number of links, for PathKind::nvlink
    bool operator==(const PathClass&) const = default;
};

/// Returns "NV18", "PIX", "PXB", "PHB", "NODE", "SYS"; "-" if it is unknown.
std::string path_class_name(const PathClass& path);

/// Returns the distance from the devices' real paths and NUMA nodes. If the firmware names no NUMA
/// node, devices of a node with only one count as near.
PathClass path_between(const NodeTopology& node, const PciPlace& a, const PciPlace& b);

/// Does the same as path_between(), but returns NVLink if both share any.
PathClass path_between(const NodeTopology& node, const GpuFacts& a, const GpuFacts& b);

}  // namespace lockstep
