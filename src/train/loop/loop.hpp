// SPDX-License-Identifier: Apache-2.0
// The training loop.
#pragma once

#include "lockstep/train/train.hpp"

#include "loop/loop_parts.hpp"

namespace lockstep {

/// Collective. Trains to the end of the run, or until a signal asked any rank to stop.
TrainEnd run_loop(const LoopParts& parts);

}  // namespace lockstep
