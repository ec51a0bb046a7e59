// SPDX-License-Identifier: Apache-2.0
// Cores of one node, shared out evenly.
#pragma once

#include "lockstep/cluster/topology.hpp"

#include <span>
#include <vector>

namespace lockstep {

/// The cores that lie within `cpus`, each with those of its hardware threads that do, in the order
/// in which Open MPI counts them: by socket, NUMA node, cache, first CPU.
std::vector<std::vector<int>> cores_within(const NodeTopology& node, const std::vector<int>& cpus);

/// `each` neighbouring cores for every one of `shares`, as indices into `cores`, spread over caches
/// and packed inside one. None crosses a cache where that is possible, else none a NUMA node, else
/// a socket. Needs shares * each <= cores.
std::vector<std::vector<int>> split_cores(const NodeTopology& node,
                                          std::span<const std::vector<int>> cores,
                                          int shares,
                                          int each);

}  // namespace lockstep
