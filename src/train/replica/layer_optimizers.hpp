// SPDX-License-Identifier: Apache-2.0
// Optimizers with a rate for each tensor, found from norms of the whole tensor.
#pragma once

#include "lockstep/train/optimizer.hpp"

#include <memory>

namespace lockstep {

std::unique_ptr<Optimizer> make_lars(const OptimizerSettings& settings);
std::unique_ptr<Optimizer> make_lamb(const OptimizerSettings& settings);

}  // namespace lockstep
