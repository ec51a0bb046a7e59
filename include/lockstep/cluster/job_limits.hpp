// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a job may use of its nodes, for the summary at its end.
#pragma once

#include "lockstep/cluster/rank_row.hpp"
#include "lockstep/core/environment.hpp"

#include <cstdint>
#include <span>
#include <string>

namespace lockstep {

/// How many cores `rank` has: what several ranks of its node may use is divided among them, so that
/// all ranks together have each core of their nodes once. No more than its part of a quota.
double core_share(std::span<const RankRow> rows, int rank, const ControlGroupFacts& group);

/// How much of a node's memory its ranks may have together.
struct UsableMemory {
    std::uint64_t bytes = 0;
    std::string set_by;  ///< "control group", "SLURM"; "node": all there is
};

/// The smallest of what `node` has, what its control group allows, and what SLURM gave the job.
UsableMemory memory_limit(const NodeFacts& node, const Environment& environment);

}  // namespace lockstep
