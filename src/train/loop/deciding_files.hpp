// SPDX-License-Identifier: Apache-2.0
// Files that decide a run's bits beside its data.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/train/settings.hpp"

namespace lockstep {

/// Collective. {"model-digest": XXH3-128 of the file} where --model names one; the same on all
/// ranks. Errors: E201, E202 for a file that cannot be read; E605 if ranks have different ones.
Json agreed_digests(const Communicator& ranks, const TrainSettings& settings);

}  // namespace lockstep
