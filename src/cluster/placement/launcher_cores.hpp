// SPDX-License-Identifier: Apache-2.0
// What a launcher left to each rank: cores of its own, or one set for several.
#pragma once

#include "lockstep/cluster/placement.hpp"

#include <span>
#include <string>
#include <vector>

namespace lockstep {

enum class LauncherBinding {
    shared,  ///< its ranks may use one set of cores, large enough: ours to split
    kept,    ///< the launcher gave it to one rank
    crowded  ///< one set, with fewer cores than ranks, and the user allows that
};

/// A set of cores, and which ranks the launcher gave just it.
struct LaunchedSet {
    std::vector<int> cpus;
    std::vector<std::size_t> members;  ///< indices into the ranks
    LauncherBinding binding = LauncherBinding::shared;
};

/// What a launcher that binds nothing leaves: what it may use itself, or else the job's control
/// group, or else the whole node.
std::vector<int> available_cpus(const NodeTopology& node, const std::vector<int>& offered);

/// The sets that ranks were given, in order of their first ranks. `warnings`: of cores that are
/// shared because the rules allow it. Errors: E609 cores that the launcher gave twice, E643 a node
/// with fewer cores than ranks; both only where rules.cores refuses.
std::vector<LaunchedSet> launched_sets(const NodeTopology& node,
                                       std::span<const LaunchedRank> ranks,
                                       const PlacementRules& rules,
                                       std::vector<std::string>& warnings);

}  // namespace lockstep
