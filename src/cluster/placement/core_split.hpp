// SPDX-License-Identifier: Apache-2.0
// Cores of one node, shared out evenly.
#pragma once

#include "lockstep/cluster/topology.hpp"

#include <span>
#include <vector>

namespace lockstep {

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
