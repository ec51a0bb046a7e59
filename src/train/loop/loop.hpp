// SPDX-License-Identifier: Apache-2.0
// The training loop and its parts.
#pragma once

#include "loop/course.hpp"
#include "loop/engine.hpp"
#include "loop/inputs.hpp"
#include "loop/run_contract.hpp"
#include "loop/run_hold.hpp"
#include "loop/start.hpp"

#include <string>

namespace lockstep {

/// Borrowed. In the order in which they are made, but for `run`, which watches from the beginning
/// on and outlives the engine.
struct LoopParts {
    const Start& start;
    const Inputs& inputs;
    const Contract& contract;
    RunHold& run;
    Engine& engine;
    Course& course;
};

/// Collective. Trains to the end of the run, or until a signal asks any rank to stop.
TrainEnd run_loop(const LoopParts& parts);

/// Collective, after a training that did not fail. What the job made of cores and memory, for
/// people, on rank 0; "" on the others, and if this start trained nothing.
std::string sum_up(const LoopParts& parts);

}  // namespace lockstep
