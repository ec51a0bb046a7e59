// SPDX-License-Identifier: Apache-2.0
// Switches a program that was exported for training to evaluation: some arguments change, as in
// torch.ao.quantization.move_exported_model_to_eval().
#pragma once

#include "program/program_graph.hpp"

#include <optional>

namespace lockstep {

/// The mode for which an operator with a switch was exported.
enum class CallMode { train, evaluate };

/// Stores the value of an argument of `call` in evaluation. Returns nothing if the operator has no
/// switch, or if it makes no difference here, such as a dropout of 0.
std::optional<CallMode> switch_mode(ProgramCall& call);

}  // namespace lockstep
