// SPDX-License-Identifier: Apache-2.0
// Models that compute in 16 bits.
#pragma once

#include "lockstep/train/settings.hpp"

#include "model/model.hpp"

#include <memory>

namespace lockstep {

/// `model`, whose operators compute in `precision` where they gain by it. What it is given and what
/// it gives, parameters, buffers and gradients are fp32 as before.
std::unique_ptr<Model> with_precision(std::unique_ptr<Model> model, Precision precision);

}  // namespace lockstep
