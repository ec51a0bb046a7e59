// SPDX-License-Identifier: Apache-2.0
/// @file
/// What follows from losses: the best evaluation, the end of a run, the loss scale, the noise
/// scale.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/plan/settings.hpp"
#include "lockstep/run/checkpoint.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace lockstep {

/// Errors: E103 if --keep-best is none of `metrics`, a task's.
void check_metric(const TrainSettings& settings, const std::map<std::string, double>& metrics);

/// Takes an evaluation after `step` into account; one by another metric than before is the first.
/// Values that are not finite are never better.
void note_evaluation(BestEvaluation& best,
                     const TrainSettings& settings,
                     const std::map<std::string, double>& metrics,
                     std::int64_t step);

/// For the log: that this evaluation cannot be the best, for its metric is not finite; "": it can,
/// or none is looked for.
std::string passed_over(const TrainSettings& settings,
                        const std::map<std::string, double>& metrics);

/// The step whose checkpoint stays; 0: none.
std::int64_t kept_step(const TrainSettings& settings, const BestEvaluation& best);

/// Why the run ends before its last step; "": it does not.
std::string reason_to_stop(const TrainSettings& settings, const BestEvaluation& best);

/// E701. The loss of step 1 is that of the initial weights: no learning rate is to blame for it.
/// With several threads, or fp16, the arithmetic itself is a suspect.
Error loss_error(double loss, std::int64_t step, const TrainSettings& settings);

/// E701. Step `step` is not finite, and there is no whole checkpoint of step `wanted`.
Error no_rollback_error(std::int64_t step, std::int64_t wanted);

/// E701. Step `step` overflows fp16 with a loss that is scaled by next to nothing.
Error scale_error(double factor, std::int64_t step);

/// E701. So many steps in a row, the last one `step`, changed nothing.
Error skipped_error(int steps, std::int64_t step);

/// The factor of the next step, after one whose gradients were finite or not.
LossScale next_scale(const LossScale& scale, bool overflowed);

/// Whether it is below 2^-14, the least number that fp16 holds with all its digits: a gradient that
/// overflows even then is beyond 2^30, and others are lost. torch.amp.GradScaler goes on to zero.
bool is_spent(const LossScale& scale);

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
    void add(const GradientNorms& norms);  ///< of the next step

    /// Nothing before there is a gradient that noise does not hide.
    std::optional<double> samples() const;

  private:
    double variance_ = 0, squares_ = 0;  ///< moving averages of tr(S) and |G|^2
    bool is_empty_ = true;
};

}  // namespace lockstep
