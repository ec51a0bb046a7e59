// SPDX-License-Identifier: Apache-2.0
// One step of made-up samples before the run begins: in which order backward finishes the
// parameters, which buckets are cut by, and a hash of all that was computed, the canary.
#pragma once

#include "model/model.hpp"
#include "replica/optimizer.hpp"
#include "task/task.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// When it goes, a model's buffers are what they were when it came.
class KeptBuffers {
  public:
    explicit KeptBuffers(const Model& model);
    ~KeptBuffers();
    KeptBuffers(const KeptBuffers&) = delete;
    KeptBuffers& operator=(const KeptBuffers&) = delete;

    /// Before that, too.
    void restore();

  private:
    NamedTensors buffers_, copies_;
};

/// Inputs of `rows` samples of `shape` that are made up, the same everywhere.
NamedTensors blank_inputs(const ModelShape& shape, std::int64_t rows);

/// The same with targets of `task`.
LeafSamples blank_samples(const Task& task, const ModelShape& shape, std::int64_t rows);

/// What the model makes of `inputs`. Errors: E217 where it cannot take them, with LibTorch's
/// reason.
NamedTensors outputs_of(Model& model, const NamedTensors& inputs);

/// Errors: E217 where outputs of `rows` samples have not the shape that the task's targets need.
void check_output_shape(const Model& model,
                        const NamedTensors& outputs,
                        const Task& task,
                        std::int64_t rows);

/// What a blank step shows.
struct BlankStep {
    /// Registration indices of the model's parameters as backward finishes them, those that the
    /// loss does not reach last.
    std::vector<std::size_t> order;
    /// XXH3-128 of the loss, all gradients, buffers and updated parameters.
    std::string hash;
};

/// Runs forward, backward and update of `rows` samples, which are the same everywhere. Weights and
/// buffers are as before afterwards, gradients undefined, hooks replaced, the generator seeded.
/// Errors: E217 where the model cannot take such samples, or the task such outputs; those of
/// throw_if_known().
BlankStep run_blank_step(Model& model,
                         const Task& task,
                         const ModelShape& shape,
                         std::int64_t rows,
                         const Optimizer& optimizer);

/// How long forward and backward of such samples take, the quickest of a few, or of one that took
/// more than `enough_s`; leaves all as run_blank_step() does.
double blank_step_seconds(
    Model& model, const Task& task, const ModelShape& shape, std::int64_t rows, double enough_s);

/// Whether the model trains on one sample by itself: batch norm over single values does not.
/// Buffers are as before afterwards, the generator seeded.
bool takes_single_rows(Model& model, const ModelShape& shape);

}  // namespace lockstep
