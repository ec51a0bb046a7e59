// SPDX-License-Identifier: Apache-2.0
// From bytes of a batch to what a model takes.
#pragma once

#include "lockstep/data/batch_stream.hpp"
#include "lockstep/data/transform.hpp"
#include "lockstep/plan/settings.hpp"
#include "lockstep/train/model.hpp"

#include "task/field_input.hpp"
#include "task/task.hpp"

#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace lockstep {

/// Where in the index's fields those lie that `names` has ("images,age"), in its order. "": that of
/// "images", or "features" where there is none, or "tokens" where there is neither. Errors: E207 if
/// there is none, E217 if one is named twice or has more than three dimensions.
std::vector<std::size_t> input_places(const DatasetIndex& index, const std::string& names);

/// Errors: E217 if one of them is what models learn.
void check_no_targets(const DatasetIndex& index, const std::string& names);

/// Whether these are as many as `wanted`, which a model takes, and in its order where they have the
/// model's names; nobody may know: then it is empty. Errors: E217 with the fields that there are.
void check_input_count(std::span<const std::string> wanted,
                       const DatasetIndex& index,
                       const std::string& names);

/// For the log, by input: its numbers as they are stored, and what is done to them. `settings` has
/// the canonical text of transforms. "images: u8, C 3, H 32, W 32, divided by 255, ...".
std::vector<std::string> input_texts(const DatasetIndex& index, const TrainSettings& settings);

/// Errors: E248 if `transform`, as the user wrote it, has `normalise`, and no input of `index` has
/// the mean and deviation that it takes.
void check_normalises(const std::string& transform,
                      const DatasetIndex& index,
                      const std::string& inputs);

/// Makes tensors of one data set's rows: inputs f32 [n, C, H, W], channels innermost in memory, or
/// tokens i64 [n, T], of the input_places(), images by a pipeline of transforms, keyed by the
/// settings' seed, epoch and sample; targets by the task. Borrows index and task.
/// Errors: E207, E217 if the fields are others; E248 if they cannot go through the pipeline.
class InputReader {
  public:
    /// `statistics`: the data set whose mean and deviation `normalise` uses, the one trained on.
    InputReader(const DatasetIndex& index,
                const TransformPipeline& pipeline,
                const TrainSettings& settings,
                const DatasetIndex& statistics,
                const Task& task);

    /// What the model is given: the shape of transformed images.
    const ModelShape& shape() const { return shape_; }

    /// A whole leaf: mixing pairs its samples, however many ranks there are.
    LeafSamples read(const Batch& batch, const LeafRows& leaf) const;

    /// All leaves of `batch`, whose memory is page-locked and stays until the stream of `stage` has
    /// read it, on its device; with the bits of read().
    std::vector<LeafSamples> read_on(const DeviceStage& stage, const Batch& batch) const;

    /// Its inputs alone, not mixed: the data set needs no targets.
    NamedTensors read_inputs(const Batch& batch, const LeafRows& leaf) const;

  private:
    struct Source {
        std::size_t place;  ///< among the index's fields
        std::unique_ptr<FieldInput> field;
    };

    TransformKey key(const Batch& batch) const { return {seed_, batch.position.epoch}; }
    std::span<const std::byte> rows_of(const Batch& batch,
                                       std::size_t place,
                                       const LeafRows& rows) const;

    /// `mix_values` is FieldInput::mix() or mix_on() of the input that is to be mixed.
    template <class Mix>
    LeafSamples samples(NamedTensors inputs,
                        const Batch& batch,
                        const LeafRows& leaf,
                        Mix&& mix_values) const;

    const DatasetIndex& index_;
    const Task& task_;
    ClassNumbers classes_;
    std::uint64_t seed_;
    std::vector<Source> sources_;
    ModelShape shape_;
};

/// Samples as evaluation sees them: without what is random in the settings' pipeline, normalised
/// by the statistics of `trained`, the data set that the model learns from.
InputReader evaluation_input(const DatasetIndex& index,
                             const DatasetIndex& trained,
                             const TrainSettings& settings,
                             const Task& task);

}  // namespace lockstep
