// SPDX-License-Identifier: Apache-2.0
/// @file
/// The placement of the ranks of this job: read on every rank, with the same result on all.
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
    NodeTopology node;              ///< this rank's, with what all its ranks see
};

/// Collective. Errors: E604, E646 (the three witnesses), E608, E609, E643, E648; on all ranks.
LivePlacement place_live(const Communicator& ranks,
                         const RankFacts& facts,
                         const PlacementRules& rules);

/// Collective. Errors: E644 on all ranks unless the job runs as the plan in `path` (map --format
/// json); those of place_live, but ranks that share cores or GPUs are not an error.
void check_plan(const Communicator& ranks,
                const RankFacts& facts,
                const std::filesystem::path& path);

}  // namespace lockstep
