// SPDX-License-Identifier: Apache-2.0
// What ranks settle on before a run is made for them.
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

/// Collective. Errors: E605 where ranks have other settings; those of check_settings().
void check_same_settings(const Communicator& ranks, const TrainSettings& settings);

/// What was not given is as the run has it, whose settings are `recorded`.
void take_recorded(TrainSettings& settings, const Json& recorded);

/// V, and a sentence about why.
struct VirtualRanks {
    int count = 1;
    std::string note;
};

/// Collective. V where nobody said it, for `samples` to train on, the same on all ranks. Leaves the
/// model as it was.
VirtualRanks choose_virtual_ranks(const Communicator& ranks,
                                  const TrainSettings& settings,
                                  std::uint64_t samples,
                                  Model& model,
                                  const Task& task,
                                  const ModelShape& shape);

/// Errors: E106 where a step does not divide into leaves, E215 where `samples` are too few.
void check_batch(const TrainSettings& settings, std::uint64_t samples);

}  // namespace lockstep
