// SPDX-License-Identifier: Apache-2.0
// What ranks settle on before a run is made for them.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/train/settings.hpp"

#include "model/model.hpp"
#include "task/task.hpp"

#include <cstdint>
#include <string>

namespace lockstep {

/// Collective. Errors: E605 where ranks have other settings; those of check_settings().
void check_same_settings(const Communicator& ranks, const TrainSettings& settings);

/// What was not given is as the run has it, whose settings are `recorded`.
void take_recorded(TrainSettings& settings, const Json& recorded);

/// Collective. V for a model and data of which nobody said it, the same on all ranks. Sets
/// settings.virtual_ranks; returns a sentence about the choice.
std::string choose_virtual_ranks(const Communicator& ranks,
                                 TrainSettings& settings,
                                 std::int64_t samples,
                                 Model& model,
                                 const Task& task,
                                 const ModelShape& shape);

/// Errors: E106 where a step does not divide into leaves, E215 where `samples` are too few.
void check_batch(const TrainSettings& settings, std::uint64_t samples);

}  // namespace lockstep
