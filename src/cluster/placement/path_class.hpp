// SPDX-License-Identifier: Apache-2.0
/// @file
/// The distance between two devices of a node, in nvidia-smi's terms.
#pragma once

#include "lockstep/cluster/topology.hpp"

#include <string>

namespace lockstep {

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
