// SPDX-License-Identifier: Apache-2.0
// Ranks' own errors, for the end of the batch script. They are needed because a launcher may return
// the code of a rank that it killed itself, and a start that never held the run writes no state.
#pragma once

#include "lockstep/cluster/requeue_rule.hpp"
#include "lockstep/core/error.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

/// Writes an error into this start's folder, $LOCKSTEP_RANK_ENDS, which the first that writes
/// creates; does nothing without the variable, which job.sh sets. `ranks`: the ranks that `error`
/// concerns, "" for this one. Never throws, because the user should see the error itself.
void note_rank_end(const Error& error, const std::string& ranks = {}) noexcept;

/// Returns the ends in the order of ranks, without torn ones. None if there is no such folder.
std::vector<RankEnd> read_rank_ends(const std::filesystem::path& folder);

}  // namespace lockstep
