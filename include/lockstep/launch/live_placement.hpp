// SPDX-License-Identifier: Apache-2.0
/// @file
/// Who sits where in the job that runs: read on every rank, decided alike on all of them.
#pragma once

#include "lockstep/cluster/placement.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/launch/rank_facts.hpp"

#include <filesystem>
#include <vector>

namespace lockstep {

/// The job's ranks, in order.
struct LivePlacement {
    Placement plan;                 ///< where each rank is to compute
    std::vector<RankSeat> reality;  ///< with the cores that each may use now
    NodeTopology node;              ///< this rank's, with what all its ranks see
};

/// Collective. Errors: E604, E646 (the three witnesses), E608, E609, E643, E648; on all ranks.
LivePlacement place_live(const Communicator& ranks,
                         const RankFacts& facts,
                         const PlacementRules& rules);

/// Collective. Errors: E644 on all ranks unless the job runs as the plan in `path` (map --format
/// json); those of place_live, where ranks that share cores or GPUs are no error of their own.
void check_plan(const Communicator& ranks,
                const RankFacts& facts,
                const std::filesystem::path& path);

}  // namespace lockstep
