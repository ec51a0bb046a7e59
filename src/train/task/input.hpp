// SPDX-License-Identifier: Apache-2.0
// From bytes of a batch to what a model takes.
#pragma once

#include "lockstep/data/batch_stream.hpp"
#include "lockstep/data/transform.hpp"
#include "lockstep/train/model.hpp"
#include "lockstep/train/settings.hpp"

#include "task/field_input.hpp"

#include <memory>

#include <ATen/core/Tensor.h>

namespace lockstep {

/// One leaf's samples: images f32 [n, C, H, W], channels innermost in memory, normalised; labels
/// i64 [n].
struct LeafInput {
    at::Tensor images, labels;
    at::Tensor partner_labels;  ///< i64 [n]; undefined where samples are not mixed
    at::Tensor lambda;          ///< f32 [n], the share of `labels`; undefined likewise
    at::Tensor weights;         ///< f32 [n], 0 for masked samples; undefined where none is

    /// Rows [first, first + rows), sharing memory.
    LeafInput part(std::int64_t first, std::int64_t rows) const;
};

/// "images", or "features" where there is none. Errors: E207 if there is neither, E217 if it has no
/// dimension or more than three.
const Field& input_field(const DatasetIndex& index);

/// Knows the fields "images", or "features" where there is none, of one to three dimensions and any
/// type, and "labels" (u8, i32 or i64 [n]) of one data set, and makes tensors of rows by a pipeline
/// of transforms, keyed by `seed`, epoch and sample.
/// Errors: E207, E217 if the fields are others; E248 if they cannot go through the pipeline.
class InputReader {
  public:
    /// `statistics`: the data set whose mean and deviation `normalise` uses, the one trained on.
    InputReader(const DatasetIndex& index,
                const TransformPipeline& pipeline,
                std::uint64_t seed,
                const DatasetIndex& statistics);

    /// What the model is given: the shape of transformed images.
    const ModelShape& shape() const { return shape_; }

    /// A whole leaf: mixing pairs its samples, however many ranks there are.
    LeafInput read(const Batch& batch, const LeafRows& leaf) const;

  private:
    void mix(const Batch& batch, const LeafRows& leaf, TransformKey key, LeafInput& input) const;

    std::size_t samples_ = 0, labels_ = 0;  ///< positions among the index's fields
    std::size_t row_bytes_ = 0;             ///< of a sample
    ElementType label_type_ = ElementType::i64;
    std::uint64_t seed_ = 0;
    std::unique_ptr<FieldInput> field_;
    ModelShape shape_;
};

/// Samples as evaluation sees them: without what is random in the settings' pipeline, normalised
/// by the statistics of `trained`, the data set that the model learns from.
InputReader evaluation_input(const DatasetIndex& index,
                             const DatasetIndex& trained,
                             const TrainSettings& settings);

}  // namespace lockstep
