// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which evaluation was the best so far, and what follows from it.
#pragma once

#include "lockstep/plan/settings.hpp"
#include "lockstep/run/checkpoint.hpp"

#include <cstdint>
#include <map>
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

}  // namespace lockstep
