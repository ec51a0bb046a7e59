// SPDX-License-Identifier: Apache-2.0
// What of a job goes into a checkpoint, and back.
#pragma once

#include "loop/job.hpp"

#include <string>

namespace lockstep {

/// Collective. Saves parameters, buffers, optimizer state and progress.
void save_job(Job& job);

/// Collective. Fills `job` from its newest whole checkpoint. Whether there was one.
bool load_job(Job& job);

/// XXH3-128 over all parameters, then float buffers, then counters, each in the model's order with
/// its name. Any rank; between steps.
std::string parameter_hash(const FlatModel& model, const float* values);

}  // namespace lockstep
