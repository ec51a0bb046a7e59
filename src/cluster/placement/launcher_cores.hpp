// SPDX-License-Identifier: Apache-2.0
// What a launcher left to each rank: cores of its own, or one set for all.
#pragma once

#include "lockstep/cluster/placement.hpp"

#include <span>
#include <vector>

namespace lockstep {

enum class LauncherBinding {
    shared,  ///< all ranks may use one set of cores, large enough: ours to split
    kept,    ///< the launcher gave each its own
    crowded  ///< one set, with fewer cores than ranks, and the user allows that
};

/// Errors: E609 cores that the launcher gave twice, E643 a node with fewer cores than ranks; both
/// only where rules.cores refuses.
LauncherBinding binding_of(const NodeTopology& node,
                           std::span<const LaunchedRank> ranks,
                           const PlacementRules& rules);

}  // namespace lockstep
