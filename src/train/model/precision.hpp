// SPDX-License-Identifier: Apache-2.0
// Models that compute in 16 bits.
#pragma once

#include "lockstep/plan/settings.hpp"

#include "model/model.hpp"

#include <memory>
#include <string>

namespace lockstep {

/// Returns `model`, whose operators compute in `precision` if they gain by it; tf32 is the GPU's
/// affair. Inputs, outputs, parameters, buffers and gradients stay fp32.
std::unique_ptr<Model> with_precision(std::unique_ptr<Model> model, Precision precision);

/// Returns "--precision bf16 is 1.5 times as slow as fp32 here: 3 ms a micro-batch against 2 ms";
/// "" if it is faster, or slower only within the error of two measurements.
std::string slower_text(const std::string& precision, double full_s, double reduced_s);

}  // namespace lockstep
