// SPDX-License-Identifier: Apache-2.0
// What of a job goes into a checkpoint, and back.
#pragma once

#include "loop/job.hpp"

namespace lockstep {

/// Collective. Saves parameters, buffers, optimizer state and progress.
void save_job(Job& job);

/// Collective. Starts the replica, and the job, from the newest whole checkpoint. Whether there was
/// one; else they start from initial weights.
bool load_job(Job& job);

}  // namespace lockstep
