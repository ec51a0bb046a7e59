// SPDX-License-Identifier: Apache-2.0
/// @file
/// Gradients of fp16 are too small for it: the loss is multiplied before backward, and gradients
/// are divided again before the update. Factors are powers of two, which round nothing.
#pragma once

#include "lockstep/run/checkpoint.hpp"

namespace lockstep {

/// The factor of the next step, after one whose gradients were finite or not.
LossScale next_scale(const LossScale& scale, bool overflowed);

/// Whether it is below 2^-14, the least number that fp16 holds with all its digits: a gradient that
/// overflows even then is beyond 2^30, and others are lost. torch.amp.GradScaler goes on to zero.
bool is_spent(const LossScale& scale);

}  // namespace lockstep
