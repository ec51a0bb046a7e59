// SPDX-License-Identifier: Apache-2.0
// The training loop.
#pragma once

#include "lockstep/train/train.hpp"

#include "loop/job.hpp"

namespace lockstep {

/// Collective. Trains `job` to its end, or until a signal asked any rank to stop.
TrainEnd run_loop(Job& job);

}  // namespace lockstep
