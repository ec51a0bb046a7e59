// SPDX-License-Identifier: Apache-2.0
// An existing run, opened for use.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/data/dataset_index.hpp"
#include "lockstep/plan/contract.hpp"
#include "lockstep/train/infer.hpp"

#include "model/model.hpp"
#include "task/task.hpp"

#include <memory>

namespace lockstep {

/// The parts of a training by the run's settings, without those that learn.
struct TrainedRun {
    RunSettings run;
    std::shared_ptr<const DatasetIndex> learned_from;  ///< perhaps fields alone, see kept_data()
    std::shared_ptr<const DatasetIndex> data;
    std::unique_ptr<Task> task;
    ModelShape shape;
    std::unique_ptr<Model> model;
    SamplePart part;        ///< part of `data`
    std::int64_t step = 0;  ///< of the checkpoint; 0: the weights are a file's
};

/// Collective. Uses all of `given` except `outputs`, which only decides whether targets are needed.
/// Without `data` there are only the fields of the training data.
/// Errors: those of infer().
TrainedRun open_trained_run(const InferSettings& given, const Communicator& ranks);

}  // namespace lockstep
