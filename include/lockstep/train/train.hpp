// SPDX-License-Identifier: Apache-2.0
/// @file
/// Trains a model on all ranks of a communicator: the same bits for any number of ranks.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/plan/settings.hpp"
#include "lockstep/run/checkpoint.hpp"

#include <string>

namespace lockstep {

/// The results of a training call; the same on all ranks, unless stated otherwise.
struct TrainResult {
    TrainEnd end = TrainEnd::complete;  ///< why it stopped
    std::int64_t step = 0;              ///< steps done, including those before a resume
    EvaluationRecord test;              ///< the last evaluation; empty without test data
    std::string summary;  ///< resources that the job used, see summary_text(); on rank 0 only
    std::string parameter_hash;  ///< XXH3-128 over all parameters and buffers, in the model's order
};

/// Collective. Creates the run directory, or resumes the run in it from its newest whole
/// checkpoint. Trains until the length in `settings` is reached, a signal asks to stop, or an Error
/// occurs. Errors: those of a run, and E105 without `settings.data` or `settings.run`.
TrainResult train_model(const TrainSettings& settings, const Communicator& ranks);

/// Returns the LibTorch version this program was built with: "2.11.0".
std::string torch_version_text();

}  // namespace lockstep
