// SPDX-License-Identifier: Apache-2.0
// Gradients that travel in fewer bits: what `--wire` puts around an exchange.
#pragma once

#include "lockstep/comm/bucket_hook.hpp"
#include "lockstep/comm/collectives.hpp"
#include "lockstep/comm/exchange.hpp"
#include "lockstep/train/settings.hpp"

#include "replica/model_layout.hpp"

#include <memory>

namespace lockstep {

/// Errors: E641 for a lossy format in a run that is to be the same on any number of ranks.
void check_wire_format(const TrainSettings& settings);

/// What sums buckets in a lossy format; empty for f32 and on one rank.
struct LossySum {
    std::unique_ptr<Collectives> collectives;
    std::unique_ptr<BucketHook> hook;  ///< uses `collectives`
};

/// Collective.
LossySum make_lossy_sum(const Communicator& ranks,
                        const ModelLayout& layout,
                        const TrainSettings& settings);

}  // namespace lockstep
