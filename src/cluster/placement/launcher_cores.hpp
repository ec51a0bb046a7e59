// SPDX-License-Identifier: Apache-2.0
// The cores that a launcher gave to each rank: cores of its own, or one set for several, which is
// shared out evenly.
#pragma once

#include "lockstep/cluster/placement.hpp"
#include "lockstep/cluster/topology.hpp"

#include <span>
#include <string>
#include <vector>

namespace lockstep {

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
