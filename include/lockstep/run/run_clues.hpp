// SPDX-License-Identifier: Apache-2.0
/// @file
/// A run's status with what flight records and checkpoints add to it.
#pragma once

#include "lockstep/run/run_status.hpp"
#include "lockstep/run/verdict.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// The wait that is worth a word by what the ranks were told.
double patience_of(std::span<const RankTrace> traces);

/// What the flight records of a start say.
struct Diagnosis {
    std::int64_t incarnation = 0;
    std::vector<RankTrace> traces;
    Verdict verdict;
    bool is_over = false;  ///< nobody is at work in that start any more
    double now_s = 0;
};

/// Of start `incarnation`; 0: the newest. A verdict that ranks gave when they ended their job knows
/// more than what is left of it, and stands in place of a new one. Errors: E201, E202, E222, E663.
Diagnosis diagnosis_of(const fs::path& run, std::int64_t incarnation);

/// Errors: those of read_run_status().
RunStatus status_of_run(const fs::path& run, StatusDepth depth);

}  // namespace lockstep
