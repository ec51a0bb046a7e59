// SPDX-License-Identifier: Apache-2.0
/// @file
/// The placement of this job's ranks. It is read on every rank, with the same result on all.
#pragma once

#include "lockstep/cluster/placement.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/launch/rank_facts.hpp"

#include <filesystem>
#include <vector>

namespace lockstep {

/// The job's ranks, in order.
struct LivePlacement {
    Placement plan;                 ///< the place of each rank
    std::vector<RankSeat> reality;  ///< with the cores that each may use now
    NodeTopology node;              ///< this rank's node, with everything that its ranks see
};

/// Collective. Reads the placement. Errors: E604, E646 (launcher, MPI and system disagree),
/// E608, E609, E643, E648; on all ranks.
LivePlacement place_live(const Communicator& ranks,
                         const RankFacts& facts,
                         const PlacementRules& rules);

/// Collective. Checks that the job runs as the plan in `path` says (map --format json). Errors:
/// E644 on all ranks if it does not; those of place_live, but ranks that share cores or GPUs are
/// not an error.
void check_plan(const Communicator& ranks,
                const RankFacts& facts,
                const std::filesystem::path& path);

}  // namespace lockstep
