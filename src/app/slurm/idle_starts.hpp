// SPDX-License-Identifier: Apache-2.0
// Starts of a run, in a row, that brought no new checkpoint: kept in RUN/starts.json.
#pragma once

#include "lockstep/core/files.hpp"

#include <cstdint>

namespace lockstep {

enum class StartsFile { update, leave };

/// A start of the run in `root` begins. One before that never said its end, because its node or its
/// batch script died, is counted now. Returns the idle starts in a row so far.
/// Errors: E222 where the file is damaged, and those of writing it.
std::int64_t note_start_begin(const fs::path& root, StartsFile file);

/// The newest incarnation of the run when the start began that has not ended; -1 where that is not
/// known: the run was not yet there, or no prolog looked. Errors: E222.
std::int64_t incarnation_before_start(const fs::path& root);

/// A start has ended. Returns the idle starts in a row, this one too. Errors: as above.
std::int64_t note_start_end(const fs::path& root, StartsFile file);

}  // namespace lockstep
