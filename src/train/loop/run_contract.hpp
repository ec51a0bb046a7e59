// SPDX-License-Identifier: Apache-2.0
// Settings that ranks agree on before a run is made for them.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/data/dataset_index.hpp"
#include "lockstep/plan/settings.hpp"

#include "model/model.hpp"
#include "task/task.hpp"

#include <cstdint>
#include <string>

namespace lockstep {

/// Collective. Checks that ranks have the same settings. Errors: E605 if not; those of
/// check_settings().
void check_same_settings(const Communicator& ranks, const TrainSettings& settings);

/// Takes settings that were not given from the run's `recorded` ones.
void take_recorded(TrainSettings& settings, const Json& recorded);

/// V, and a sentence with the reason.
struct VirtualRanks {
    int count = 1;
    std::string note;
};

/// Collective. Returns V if the user did not set it, for `samples` to train on, the same on all
/// ranks. Leaves the model unchanged.
VirtualRanks choose_virtual_ranks(const Communicator& ranks,
                                  const TrainSettings& settings,
                                  std::uint64_t samples,
                                  Model& model,
                                  const Task& task,
                                  const ModelShape& shape);

/// Checks the batch. Errors: E106 if a step does not divide into leaves, E215 if there are too few
/// `samples`.
void check_batch(const TrainSettings& settings, std::uint64_t samples);

}  // namespace lockstep
