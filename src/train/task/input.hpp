// SPDX-License-Identifier: Apache-2.0
// From bytes of a batch to what a model takes.
#pragma once

#include "lockstep/data/batch_stream.hpp"
#include "lockstep/data/transform.hpp"
#include "lockstep/train/model.hpp"
#include "lockstep/train/settings.hpp"

#include "task/field_input.hpp"
#include "task/task.hpp"

#include <memory>

#include <ATen/core/Tensor.h>

namespace lockstep {

/// "images", or "features" where there is none, or "tokens" where there is neither. Errors: E207 if
/// there is none, E217 if it has no dimension or more than three.
const Field& input_field(const DatasetIndex& index);

/// Makes tensors of one data set's rows: inputs f32 [n, C, H, W], channels innermost in memory, or
/// tokens i64 [n, T], of the input_field() by a pipeline of transforms, keyed by `seed`, epoch and
/// sample; targets by the task. Borrows index and task.
/// Errors: E207, E217 if the fields are others; E248 if they cannot go through the pipeline.
class InputReader {
  public:
    /// `statistics`: the data set whose mean and deviation `normalise` uses, the one trained on.
    InputReader(const DatasetIndex& index,
                const TransformPipeline& pipeline,
                std::uint64_t seed,
                const DatasetIndex& statistics,
                const Task& task);

    /// What the model is given: the shape of transformed images.
    const ModelShape& shape() const { return shape_; }

    /// A whole leaf: mixing pairs its samples, however many ranks there are.
    LeafSamples read(const Batch& batch, const LeafRows& leaf) const;

    /// Its inputs alone, not mixed: the data set needs no targets.
    NamedTensors read_inputs(const Batch& batch, const LeafRows& leaf) const;

  private:
    TransformKey key(const Batch& batch) const { return {seed_, batch.position.epoch}; }

    const DatasetIndex& index_;
    const Task& task_;
    std::size_t place_;  ///< of the input among the index's fields
    std::uint64_t seed_;
    std::unique_ptr<FieldInput> field_;
    ModelShape shape_;
};

/// Samples as evaluation sees them: without what is random in the settings' pipeline, normalised
/// by the statistics of `trained`, the data set that the model learns from.
InputReader evaluation_input(const DatasetIndex& index,
                             const DatasetIndex& trained,
                             const TrainSettings& settings,
                             const Task& task);

}  // namespace lockstep
