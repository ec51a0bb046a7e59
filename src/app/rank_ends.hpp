// SPDX-License-Identifier: Apache-2.0
// What ranks say of their own failure, for the end of the batch script: a launcher's exit code may
// be that of a rank which it killed itself, and a start that never held the run writes no state.
#pragma once

#include "lockstep/cluster/requeue_rule.hpp"
#include "lockstep/core/error.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

/// Names the folder of this start, made by the first rank that writes; job.sh sets it.
inline constexpr const char* rank_ends_variable = "LOCKSTEP_RANK_ENDS";

/// Leaves a word there; nothing without the variable. `ranks`: of whom `error` speaks, "" for this
/// one. Never throws: the error itself is what the user should see.
void note_rank_end(const Error& error, const std::string& ranks = {}) noexcept;

/// In the order of ranks; nothing for torn ones. None where there is no such folder.
std::vector<RankEnd> read_rank_ends(const std::filesystem::path& folder);

}  // namespace lockstep
