// SPDX-License-Identifier: Apache-2.0
// Weights of a file into a model.
#pragma once

#include "lockstep/run/safetensors.hpp"

#include "checkpoint/initial_weights.hpp"
#include "model/model.hpp"

#include <filesystem>
#include <string>

namespace lockstep {

/// Replaces parameters and float buffers by those of the same names in `file`, but for what `skip`,
/// patterns with commas between them, names; `prefix` is taken off names in the file. What is
/// frozen may be in the file with the same values. Returns a line for the log. Errors: E107, E304
/// (see match_weights), E309.
std::string load_weights(Model& model,
                         const SafetensorsFile& file,
                         const std::string& skip,
                         WeightsFor use,
                         const std::string& prefix = "");

/// The same from the newest whole checkpoint below `checkpoints`: the moving average of parameters
/// where there is one. Each rank by itself. Errors: E301 no checkpoint, E304 other tensors; those
/// of load_checkpoint().
void load_checkpointed(Model& model, const std::filesystem::path& checkpoints);

}  // namespace lockstep
