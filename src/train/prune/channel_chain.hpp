// SPDX-License-Identifier: Apache-2.0
// Removes channels from a model's weights.
#pragma once

#include "model/model.hpp"

#include <map>
#include <string>

#include <ATen/core/Tensor.h>

namespace lockstep {

/// Weights by their names.
using WeightMap = std::map<std::string, at::Tensor>;

/// Returns the parameters and running statistics of `model`, sharing memory.
WeightMap weight_map(const Model& model);

/// Checks that a built-in model can be pruned. Errors: E106 with the reason, if the channels of
/// `name` are no simple chain, or there is none of that name.
void check_prunable(const std::string& name);

/// Returns the channels of the model's layers but the last, "32,64,512", from `weights`.
std::string channels_in(const std::string& model, const WeightMap& weights);

/// Keeps in each layer but the last the share `keep`, rounded up, of its output channels: those
/// whose weights have the greatest L1 norm, in their order, the first of equal ones. A layer's
/// inputs are cut before its own channels are compared.
void prune_channels(const std::string& model, double keep, WeightMap& weights);

}  // namespace lockstep
