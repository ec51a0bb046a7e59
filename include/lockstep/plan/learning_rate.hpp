// SPDX-License-Identifier: Apache-2.0
/// @file
//// @file
//// The learning rate of each step.
#pragma once

#include "lockstep/plan/settings.hpp"

#include <cstdint>
#include <string>

namespace lockstep {

/// How long a run is.
struct RunLength {
    std::int64_t steps_per_epoch = 0;  ///< at least 1
    std::int64_t total_steps = 0;      ///< of all epochs
};

/// The rate that a run reaches: the given one, times batch by reference batch (Goyal et al.,
/// https://arxiv.org/abs/1706.02677) or its root (Krizhevsky, https://arxiv.org/abs/1404.5997).
double peak_rate(const TrainSettings& settings);

/// For people: what became of the rate and of the number of updates; "" without a scale.
std::string scale_text(const TrainSettings& settings, const RunLength& length);

/// The learning rate of `step` (from 0) of a run that reaches `peak`. First it grows linearly for
/// the steps of the warm-up, to what the schedule begins with. Then, over the steps that are left:
/// - constant: `peak`;
/// - step: `peak` times gamma for each `every` that has passed since step 0;
/// - cosine: half a cosine down to `end` (Loshchilov and Hutter, https://arxiv.org/abs/1608.03983,
///   without restarts);
/// - linear, polynomial: down to `end` as the 1st, or any power of what is left;
/// - one-cycle: half a cosine from a 25th of `peak` up to it in 30 % of the steps, another one down
///   to `end`, which the last step has (Smith and Topin, https://arxiv.org/abs/1708.07120; the
///   rates of PyTorch's OneCycleLR with cycle_momentum=False, whose min_lr is `end`).
double learning_rate(double peak,
                     const ScheduleSettings& schedule,
                     std::int64_t step,
                     const RunLength& length);

}  // namespace lockstep
