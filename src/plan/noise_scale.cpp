// SPDX-License-Identifier: Apache-2.0
#include "lockstep/plan/losses.hpp"

#include <cmath>

namespace lockstep {
namespace {

constexpr double decay = 0.9;

void average(double& mean, double value, bool is_first) {
    mean = is_first ? value : decay * mean + (1 - decay) * value;
}

}  // namespace

// Equations A.2 and A.3: unbiased, as E|g|^2 = |G|^2 + tr(S) / B for a mean over B samples.
void NoiseScale::add(const GradientNorms& norms) {
    const double small = norms.leaf_samples, large = norms.step_samples;
    const double squares =
        (large * norms.step_squares - small * norms.leaf_squares) / (large - small);
    const double variance = (norms.leaf_squares - norms.step_squares) / (1 / small - 1 / large);
    average(squares_, squares, is_empty_);
    average(variance_, variance, is_empty_);
    is_empty_ = false;
}

std::optional<double> NoiseScale::samples() const {
    const bool is_known = squares_ > 0 && variance_ > 0 && std::isfinite(variance_ / squares_);
    return is_known ? std::optional(variance_ / squares_) : std::nullopt;
}

}  // namespace lockstep
