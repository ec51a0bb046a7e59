// SPDX-License-Identifier: Apache-2.0
// Which sample a loss that is not finite comes from.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/data/batch_stream.hpp"
#include "lockstep/train/settings.hpp"

#include <cstdint>
#include <optional>

namespace lockstep {

/// E701 for the loss of step `step` that names the first sample of `batch`, rows of `index`, whose
/// inputs or targets as they are stored are not finite; nothing if all of this rank's are.
std::optional<Error> sample_error(double loss,
                                  std::int64_t step,
                                  const Batch& batch,
                                  const DatasetIndex& index,
                                  const TrainSettings& settings);

}  // namespace lockstep
