// SPDX-License-Identifier: Apache-2.0
// Settings that ranks agree on before a run is made for them.
#pragma once

#include "lockstep/comm/leaf_tree.hpp"
#include "lockstep/core/instruction_set.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/plan/run_length.hpp"
#include "lockstep/plan/settings.hpp"
#include "lockstep/run/checkpoint.hpp"

#include "checkpoint/initial_weights.hpp"
#include "loop/inputs.hpp"
#include "model/model.hpp"
#include "task/task.hpp"

#include <optional>

namespace lockstep {

/// What decides the run's bits.
struct Contract {
    RunAge age() const { return recorded.empty() ? RunAge::created : RunAge::resumed; }

    Json recorded;  ///< deciding settings of the run that is there; empty: none is
    InitialWeights weights;
    InstructionSet most_useful = InstructionSet::basic;  ///< before ranks agreed on one
    RunLength length;
    std::optional<TreePlan> plan;
    BitContract bits;  ///< deciding settings on rank 0 only
};

/// Collective. What the run has already, and the instruction set: from here on LibTorch may
/// compute. V, length and plan are not settled yet. Errors: those of check_normalises(),
/// choose_task(), settle_initial_weights() and settle_arithmetic().
Contract settle_contract(Start& start, const Inputs& inputs);

/// Collective. V, where nobody said it, and what follows from it: length and plan. Leaves the model
/// as it was. Errors: E106 where a step does not divide into leaves, E215 where samples are too
/// few, E217; those of check_effects().
void cut_steps(Start& start,
               const Inputs& inputs,
               Contract& contract,
               Model& model,
               const Task& task,
               const ModelShape& shape);

}  // namespace lockstep
