// SPDX-License-Identifier: Apache-2.0
// Taking channels out of a model's weights.
#pragma once

#include "model/model.hpp"

#include <map>
#include <string>

#include <ATen/core/Tensor.h>

namespace lockstep {

/// Weights by their names.
using WeightMap = std::map<std::string, at::Tensor>;

/// Errors: E106 saying why, if the channels of the built-in model `name` are no simple chain, or
/// there is none of that name.
void check_prunable(const std::string& name);

/// The channels of the model's layers but the last, "32,64,512", as `weights` have them.
std::string channels_in(const std::string& model, const WeightMap& weights);

/// Each layer but the last keeps the share `keep`, rounded up, of its output channels: those whose
/// weights have the greatest L1 norm, in their order, the first of equal ones. What a layer reads
/// is cut before its own channels are compared.
void prune_channels(const std::string& model, double keep, WeightMap& weights);

}  // namespace lockstep
