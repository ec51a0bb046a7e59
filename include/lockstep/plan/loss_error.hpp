// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a loss that is not finite may come from.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/plan/settings.hpp"

#include <cstdint>

namespace lockstep {

/// E701. The loss of step 1 is that of the initial weights: no learning rate is to blame for it.
/// With several threads, or fp16, the arithmetic itself is a suspect.
Error loss_error(double loss, std::int64_t step, const TrainSettings& settings);

/// E701. Step `step` is not finite, and there is no whole checkpoint of step `wanted`.
Error no_rollback_error(std::int64_t step, std::int64_t wanted);

/// E701. Step `step` overflows fp16 with a loss that is scaled by next to nothing.
Error scale_error(double factor, std::int64_t step);

/// E701. So many steps in a row, the last one `step`, changed nothing.
Error skipped_error(int steps, std::int64_t step);

}  // namespace lockstep
