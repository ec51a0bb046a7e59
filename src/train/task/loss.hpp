// SPDX-License-Identifier: Apache-2.0
// The loss of some samples, and how many of them were right.
#pragma once

#include "task/input.hpp"

#include <ATen/core/Tensor.h>

namespace lockstep {

/// Cross entropy of `logits` f32 [n, classes], summed over the samples: a mixed sample counts
/// lambda * CE(label) + (1 - lambda) * CE(partner's label), a masked one nothing. Scalar.
at::Tensor summed_loss(const at::Tensor& logits, const LeafInput& input);

/// Samples whose largest logit is their label; masked ones are never right.
std::int64_t count_correct(const at::Tensor& logits, const LeafInput& input);

}  // namespace lockstep
