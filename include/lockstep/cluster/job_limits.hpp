// SPDX-License-Identifier: Apache-2.0
/// @file
/// The resources of its nodes that a job may use, for the summary at its end.
#pragma once

#include "lockstep/cluster/rank_row.hpp"
#include "lockstep/core/environment.hpp"

#include <cstdint>
#include <span>
#include <string>

namespace lockstep {

/// Returns the number of cores of `rank`. Cores that several ranks of a node may use are divided
/// among them, so that all ranks together have each core of their nodes once. It is at most the
/// rank's part of a quota.
double core_share(std::span<const RankRow> rows, int rank, const ControlGroupFacts& group);

/// The memory of a node that its ranks together may use.
struct UsableMemory {
    std::uint64_t bytes = 0;
    std::string set_by;  ///< "control group", "SLURM"; "node": no other limit
};

/// Returns the smallest of the memory of `node`, the limit of its control group, and the memory
/// that SLURM gave the job.
UsableMemory memory_limit(const NodeFacts& node, const Environment& environment);

}  // namespace lockstep
