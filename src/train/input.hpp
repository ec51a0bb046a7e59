// SPDX-License-Identifier: Apache-2.0
// From bytes of a batch to what a model takes.
#pragma once

#include "lockstep/data/batch_stream.hpp"
#include "lockstep/train/model.hpp"

#include <ATen/core/Tensor.h>

namespace lockstep {

/// One leaf's samples: images f32 [n, C, H, W], normalised; labels i64 [n].
struct LeafInput {
    at::Tensor images, labels;
};

/// Knows the fields "images" (u8 [n, C, H, W]) and "labels" (i64 [n]) of one data set and turns
/// rows into tensors: (u8 / 255 - mean[c]) / std[c]. Errors: E207, E217 if the fields are others.
class InputReader {
  public:
    explicit InputReader(const DatasetIndex& index);

    const ModelShape& shape() const { return shape_; }
    LeafInput read(const Batch& batch, const LeafRows& leaf) const;

  private:
    std::size_t images_ = 0, labels_ = 0;  ///< positions among the index's fields
    ModelShape shape_;
    at::Tensor mean_, scale_;  ///< f32 [C, 1, 1], in units of u8
};

}  // namespace lockstep
