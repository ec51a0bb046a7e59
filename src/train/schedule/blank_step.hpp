// SPDX-License-Identifier: Apache-2.0
// One step of generated samples before the run begins. It shows the order in which backward
// finishes the parameters, which decides the buckets, and gives a hash of all results, the canary.
#pragma once

#include "model/model.hpp"
#include "replica/optimizer.hpp"
#include "task/task.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// Restores a model's buffers when it is destroyed.
class KeptBuffers {
  public:
    explicit KeptBuffers(const Model& model);
    ~KeptBuffers();
    KeptBuffers& operator=(KeptBuffers&&) = delete;

    /// Restores them earlier.
    void restore();

  private:
    NamedTensors buffers_;
    std::vector<at::Tensor> copies_;
};

/// Returns generated inputs of `rows` samples of `shape`, the same on every machine.
NamedTensors blank_inputs(const ModelShape& shape, std::int64_t rows);

/// Returns the same with targets of `task`.
LeafSamples blank_samples(const Task& task, const ModelShape& shape, std::int64_t rows);

/// Returns the model's outputs for `inputs`. Errors: E217 if it cannot take them, with LibTorch's
/// reason.
NamedTensors outputs_of(Model& model, const NamedTensors& inputs);

/// Names the outputs of `model` for a task that shows them as metrics. Errors: as above.
void name_outputs(Task& task, Model& model, const ModelShape& shape);

/// Returns the outputs of a pass after the blank step. Errors: E217 if they do not have the shape
/// that the task's targets need, as they had then.
NamedTensors checked_outputs(Model& model, const Task& task, const NamedTensors& inputs);

/// The result of a blank step.
struct BlankStep {
    /// Registration indices of the model's parameters in the order of backward; those that the loss
    /// does not reach are last.
    std::vector<std::size_t> order;
    /// XXH3-128 of the loss, all gradients, buffers and updated parameters.
    std::string hash;
};

/// Runs forward, backward and update of `rows` samples, which are the same everywhere. Afterwards
/// weights and buffers are unchanged, gradients undefined, hooks replaced, and the generator is
/// seeded. Errors: E217 if the model cannot take such samples, or the task such outputs; those of
/// throw_if_known().
BlankStep run_blank_step(Model& model,
                         const Task& task,
                         const ModelShape& shape,
                         std::int64_t rows,
                         const OptimizerSettings& optimizer);

/// Returns the time of forward and backward of such samples: the quickest of a few, or of one that
/// took more than `enough_s`. Leaves all as run_blank_step() does.
double blank_step_seconds(
    Model& model, const Task& task, const ModelShape& shape, std::int64_t rows, double enough_s);

/// Returns true if the model trains on one sample by itself: batch norm over single values does
/// not. Afterwards buffers are unchanged and the generator is seeded.
bool takes_single_rows(Model& model, const ModelShape& shape);

}  // namespace lockstep
