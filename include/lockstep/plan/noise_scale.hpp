// SPDX-License-Identifier: Apache-2.0
/// @file
/// How large a batch is worth its samples: McCandlish et al., An Empirical Model of Large-Batch
/// Training, https://arxiv.org/abs/1812.06162, appendix A.1.
#pragma once

#include <cstdint>
#include <optional>

namespace lockstep {

/// Gradients of one step, of means over samples.
struct GradientNorms {
    double leaf_squares = 0;  ///< mean over leaves of the squared norm
    double step_squares = 0;  ///< squared norm of the whole step's
    double leaf_samples = 1;  ///< fewer than step_samples
    double step_samples = 2;
};

/// Estimates the gradient noise scale tr(S) / |G|^2, in samples: below it a batch twice as large
/// needs nearly half the steps, above it hardly fewer. Both parts are averaged over steps, for one
/// step's quotient says little.
class NoiseScale {
  public:
    void add(const GradientNorms& norms);

    /// Nothing before there is a gradient that noise does not hide.
    std::optional<double> samples() const;

  private:
    double variance_ = 0, squares_ = 0;  ///< moving averages of tr(S) and |G|^2
    bool is_empty_ = true;
};

}  // namespace lockstep
