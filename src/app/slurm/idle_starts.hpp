// SPDX-License-Identifier: Apache-2.0
// Counts the starts of a run, in a row, without a new checkpoint, in RUN/starts.json.
#pragma once

#include "lockstep/core/files.hpp"

#include <cstdint>

namespace lockstep {

enum class StartsFile { update, leave };

/// Notes that a start of the run in `root` begins. An earlier start that never noted its end,
/// because its node or its batch script died, is counted now. Returns the idle starts in a row so
/// far. Errors: E222 if the file is damaged, and those of writing it.
std::int64_t note_start_begin(const fs::path& root, StartsFile file);

/// Returns the newest incarnation of the run when the present start began; -1 if it is unknown: the
/// run did not exist yet, or no prolog ran. Errors: E222.
std::int64_t incarnation_before_start(const fs::path& root);

/// Notes an ended start. Returns the idle starts in a row, including this one. Errors: as above.
std::int64_t note_start_end(const fs::path& root, StartsFile file);

}  // namespace lockstep
