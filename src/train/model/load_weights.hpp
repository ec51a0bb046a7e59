// SPDX-License-Identifier: Apache-2.0
// Loads weights of a file into a model.
#pragma once

#include "lockstep/run/tensor_files.hpp"

#include "checkpoint/initial_weights.hpp"
#include "model/model.hpp"

#include <filesystem>
#include <string>

namespace lockstep {

/// Replaces parameters and float buffers by those of the same names in `file`, except names that
/// match `skip`, patterns with commas between them. `prefix` is removed from names in the file.
/// Frozen parameters may be in the file with the same values. Returns a line for the log. Errors:
/// E107 also if nothing is loaded, E304 (see match_weights), E309.
std::string load_weights(Model& model,
                         const WeightsFile& file,
                         const std::string& skip,
                         WeightsFor use,
                         const std::string& prefix = "");

/// Does the same from the checkpoint of `run` that `choice` names, or, for "newest", from the
/// newest whole one; the moving average of parameters is used if there is one. Returns its step.
/// Each rank by itself. Errors: E304 other tensors; those of chosen_checkpoint() and
/// load_checkpoint().
std::int64_t load_checkpointed(Model& model, const fs::path& run, const std::string& choice);

/// Replaces all of them by those of a checkpoint, of another run perhaps, except names that match
/// `skip`. Returns a line for the log. Each rank by itself. Errors: E107; E304 naming the tensors
/// that do not fit, also if one is frozen in the model's file and learned something else there;
/// E303, those of load_checkpoint().
std::string load_from_run(Model& model, const fs::path& checkpoint, const std::string& skip);

}  // namespace lockstep
