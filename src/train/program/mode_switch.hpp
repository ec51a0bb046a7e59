// SPDX-License-Identifier: Apache-2.0
// A program that was exported for training is also the one for evaluation, with some arguments the
// other way, as torch.ao.quantization.move_exported_model_to_eval() has it.
#pragma once

#include "program/program_graph.hpp"

#include <optional>

namespace lockstep {

/// What an operator with a switch was exported for.
enum class CallMode { train, evaluate };

/// Notes what an argument of `call` is in evaluation. Nothing: the operator has no switch, or it
/// makes no difference here, such as a dropout of 0.
std::optional<CallMode> switch_mode(ProgramCall& call);

}  // namespace lockstep
