// SPDX-License-Identifier: Apache-2.0
/// @file
/// Into how many leaves a step is cut where nobody said it.
#pragma once

#include "lockstep/train/settings.hpp"

#include <cstdint>

namespace lockstep {

/// What of a model bears on how finely its steps are cut.
struct ModelTraits {
    std::int64_t parameters = 0;
    bool has_batch_statistics = false;  ///< of each leaf, as batch norm takes them
};

/// V where nobody said it: as many as cost little where leaves are computed together, or `least`,
/// which the ranks need. Depends on their number only by that.
int default_virtual_ranks(const TrainSettings& settings,
                          std::int64_t samples,
                          const ModelTraits& model,
                          int least);

}  // namespace lockstep
