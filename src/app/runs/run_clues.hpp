// SPDX-License-Identifier: Apache-2.0
// A run's status with what flight records and checkpoints add to it.
#pragma once

#include "lockstep/comm/rank_trace.hpp"
#include "lockstep/observe/run_status.hpp"

#include <span>

namespace lockstep {

/// The wait that is worth a word by what the ranks were told.
double patience_of(std::span<const RankTrace> traces);

/// Errors: those of read_run_status().
RunStatus status_of_run(const fs::path& run, StatusDepth depth);

}  // namespace lockstep
