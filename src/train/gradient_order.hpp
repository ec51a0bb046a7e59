// SPDX-License-Identifier: Apache-2.0
// In which order backward finishes the parameters: what buckets are cut by.
#pragma once

#include "lockstep/train/model.hpp"

#include <cstddef>
#include <vector>

namespace lockstep {

/// Registration indices of the model's parameters as backward finishes them, those that the loss
/// does not reach last. Runs one forward and backward of two blank samples; weights and buffers
/// are as before, gradients undefined, hooks replaced.
std::vector<std::size_t> observe_gradient_order(Classifier& model, const ModelShape& shape);

}  // namespace lockstep
