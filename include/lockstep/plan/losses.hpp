// SPDX-License-Identifier: Apache-2.0
/// @file
/// Decisions that depend on losses: the best evaluation, the end of a run, the loss scale, the
/// noise scale.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/plan/run_length.hpp"
#include "lockstep/plan/settings.hpp"
#include "lockstep/run/checkpoint.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// Checks that --keep-best is one of the task's `metrics`, and that its better direction is known
/// or given (":min", ":max"). Errors: E103.
void check_metric(const TrainSettings& settings, const std::map<std::string, double>& metrics);

/// Returns true if `value` of the metric that --keep-best names is better than another value.
bool is_better(const std::string& keep_best, double value, double than);

/// Takes an evaluation after `step` into account. The first one by another metric than before
/// replaces the old best. Values that are not finite are never better.
void note_evaluation(BestEvaluation& best,
                     const TrainSettings& settings,
                     const std::map<std::string, double>& metrics,
                     std::int64_t step);

/// Returns a log text if the evaluation cannot be the best because its metric is not finite.
/// Returns "" if it can, or if no best is kept.
std::string passed_over(const TrainSettings& settings,
                        const std::map<std::string, double>& metrics);

/// Returns how many of the best evaluations keep their checkpoint; 0: none.
int best_kept(const TrainSettings& settings);

/// Returns the steps of these evaluations, the best one first.
std::vector<std::int64_t> kept_steps(const TrainSettings& settings, const BestEvaluation& best);

/// Returns what keeps checkpoints of a run of `length`. `read`: the step from which it resumed.
Retention retention_of(const TrainSettings& settings,
                       const RunLength& length,
                       const BestEvaluation& best,
                       std::int64_t read);

/// Returns the reason why the run ends before its last step; "": it continues.
std::string reason_to_stop(const TrainSettings& settings, const BestEvaluation& best);

/// Returns E701. The loss of step 1 belongs to the initial weights: the learning rate cannot be its
/// cause. With several threads, or fp16, the arithmetic itself may be.
Error loss_error(double loss, std::int64_t step, const TrainSettings& settings);

/// Returns E701: step `step` is not finite, and there is no whole checkpoint of step `wanted`.
Error no_rollback_error(std::int64_t step, std::int64_t wanted);

/// Returns E701: step `step` overflows fp16 although the loss scale is near zero.
Error scale_error(double factor, std::int64_t step);

/// Returns E701: `steps` steps in a row, the last one `step`, changed nothing.
Error skipped_error(int steps, std::int64_t step);

/// Returns the loss scale of the next step, after one whose gradients were finite or not.
LossScale next_scale(const LossScale& scale, bool overflowed);

/// Returns true if the scale is below 2^-14, the smallest number that fp16 holds with all its
/// digits. A gradient that overflows even then is beyond 2^30, and others are lost.
/// torch.amp.GradScaler continues to zero.
bool is_spent(const LossScale& scale);

/// Norms of one step's gradients of means over samples.
struct GradientNorms {
    double leaf_squares = 0;  ///< mean over leaves of the squared norm
    double step_squares = 0;  ///< squared norm of the whole step's gradient
    double leaf_samples = 1;  ///< samples of a leaf, fewer than step_samples
    double step_samples = 2;
};

/// Estimates the gradient noise scale tr(S) / |G|^2, in samples. Below it a batch twice as large
/// needs nearly half the steps, above it hardly fewer. Both parts are averaged over steps, because
/// the quotient of a single step says little.
class NoiseScale {
  public:
    void add(const GradientNorms& norms);  ///< adds those of the next step

    /// Returns nothing until some gradient stands out from the noise.
    std::optional<double> samples() const;

  private:
    double variance_ = 0, squares_ = 0;  ///< moving averages of tr(S) and |G|^2
    bool is_empty_ = true;
};

}  // namespace lockstep
