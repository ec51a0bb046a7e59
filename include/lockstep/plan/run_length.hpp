// SPDX-License-Identifier: Apache-2.0
/// @file
/// How samples are cut into steps, and steps into what is computed at once.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/plan/learning_rate.hpp"
#include "lockstep/plan/settings.hpp"

#include <cstdint>
#include <optional>

namespace lockstep {

/// Of a run over `samples`, whose V is settled.
RunLength length_of(const TrainSettings& settings, std::int64_t samples);

/// After `done` steps: the last one after which a checkpoint was due, by steps or epochs; 0: none.
std::int64_t rollback_step(const TrainSettings& settings,
                           const RunLength& length,
                           std::int64_t done);

/// Samples that an epoch leaves out with --drop-last.
std::uint32_t dropped_samples(const TrainSettings& settings, std::uint64_t samples);

/// E217 where some step computes a single sample by itself, for models that cannot.
std::optional<Error> single_rows(const TrainSettings& settings,
                                 std::int64_t samples,
                                 const RunLength& length);

}  // namespace lockstep
