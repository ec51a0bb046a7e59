// SPDX-License-Identifier: Apache-2.0
// What Adam's moments need in one step: Kingma and Ba, https://arxiv.org/abs/1412.6980.
#pragma once

#include "lockstep/train/optimizer.hpp"

#include <cmath>

namespace lockstep {

/// Factors of one step; loops over floats have floats.
struct Moments {
    Moments(const OptimizerSettings& settings, const UpdateStep& step)
        : beta1(static_cast<float>(settings.beta1)),
          beta2(static_cast<float>(settings.beta2)),
          keep1(static_cast<float>(1 - settings.beta1)),
          keep2(static_cast<float>(1 - settings.beta2)),
          epsilon(static_cast<float>(settings.epsilon)),
          correction1(1 - std::pow(settings.beta1, static_cast<double>(step.number))),
          root2(static_cast<float>(
              std::sqrt(1 - std::pow(settings.beta2, static_cast<double>(step.number))))) {}

    float beta1, beta2;
    float keep1, keep2;  ///< 1 - beta
    float epsilon;
    double correction1;  ///< the first moment is divided by this
    float root2;         ///< and the root of the second by this
};

}  // namespace lockstep
