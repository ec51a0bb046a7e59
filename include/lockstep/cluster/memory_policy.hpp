// SPDX-License-Identifier: Apache-2.0
/// @file
/// From which NUMA node the kernel takes a rank's memory.
#pragma once

#include "lockstep/cluster/topology.hpp"

#include <optional>
#include <vector>

namespace lockstep {

/// The NUMA node that all of `cpus` lie in; nothing where they lie in several, where the machine
/// has only one with memory, or where nobody knows.
std::optional<int> memory_node_of(const NodeTopology& node, const std::vector<int>& cpus);

/// Memory that this thread and those it will make touch first comes from `numa_node` while there is
/// some (set_mempolicy, MPOL_PREFERRED); kept over exec. False where the system refuses, as
/// containers do, or where somebody (numactl) has chosen another policy, which is kept.
bool prefer_memory_of(int numa_node);

/// The NUMA node that this thread prefers (get_mempolicy); nothing where it prefers none.
std::optional<int> preferred_memory_node();

}  // namespace lockstep
