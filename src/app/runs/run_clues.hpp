// SPDX-License-Identifier: Apache-2.0
// A run's status with what flight records and checkpoints add to it.
#pragma once

#include "lockstep/observe/run_status.hpp"

namespace lockstep {

/// Errors: those of read_run_status().
RunStatus status_of_run(const fs::path& run, StatusDepth depth);

}  // namespace lockstep
