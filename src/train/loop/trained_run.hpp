// SPDX-License-Identifier: Apache-2.0
// A run that is there, opened to be used.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/data/dataset_index.hpp"
#include "lockstep/plan/contract.hpp"
#include "lockstep/train/infer.hpp"

#include "model/model.hpp"
#include "task/task.hpp"

#include <memory>

namespace lockstep {

/// What training would have made of the run's settings, without anything that learns.
struct TrainedRun {
    RunSettings run;
    std::shared_ptr<const DatasetIndex> learned_from, data;
    std::unique_ptr<Task> task;
    ModelShape shape;
    std::unique_ptr<Model> model;
    SamplePart part;  ///< of `data`
};

/// Collective. Of `given` all but `outputs`, which only say whether targets are needed. Errors:
/// those of infer().
TrainedRun open_trained_run(const InferSettings& given, const Communicator& ranks);

}  // namespace lockstep
