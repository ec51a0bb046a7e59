// SPDX-License-Identifier: Apache-2.0
/// @file
/// How far apart two devices of a node are, in nvidia-smi's words.
#pragma once

#include "lockstep/cluster/topology.hpp"

#include <string>

namespace lockstep {

/// From near to far: links of their own; at most one switch; several switches; through the CPU's
/// host bridge; between host bridges of one NUMA node; between NUMA nodes.
enum class PathKind { nvlink, pix, pxb, phb, node, sys, unknown };

/// How far apart two devices are.
struct PathClass {
    PathKind kind = PathKind::unknown;
    int nvlinks = 0;  ///< of PathKind::nvlink
    bool operator==(const PathClass&) const = default;
};

/// "NV18", "PIX", "PXB", "PHB", "NODE", "SYS"; "-" where it is unknown.
std::string path_class_name(const PathClass& path);

/// From the devices' real paths and NUMA nodes. Where the firmware names no NUMA node, devices of a
/// node with only one count as near.
PathClass path_between(const NodeTopology& node, const PciPlace& a, const PciPlace& b);

/// As path_between(), but NVLink where both share any.
PathClass path_between(const NodeTopology& node, const GpuFacts& a, const GpuFacts& b);

}  // namespace lockstep
