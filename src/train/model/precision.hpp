// SPDX-License-Identifier: Apache-2.0
// Models that compute in 16 bits.
#pragma once

#include "lockstep/plan/settings.hpp"

#include "model/model.hpp"

#include <memory>
#include <string>

namespace lockstep {

/// `model`, whose operators compute in `precision` where they gain by it. What it is given and what
/// it gives, parameters, buffers and gradients are fp32 as before.
std::unique_ptr<Model> with_precision(std::unique_ptr<Model> model, Precision precision);

/// "--precision bf16 is 1.5 times as slow as fp32 here: 3 ms a micro-batch against 2 ms"; "" where
/// it is faster, or slower by no more than two measurements may differ.
std::string slower_text(const std::string& precision, double full_s, double reduced_s);

}  // namespace lockstep
