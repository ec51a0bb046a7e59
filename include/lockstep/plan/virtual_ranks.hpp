// SPDX-License-Identifier: Apache-2.0
/// @file
/// Into how many leaves a step is cut where nobody said it.
#pragma once

#include "lockstep/plan/settings.hpp"

#include <cstdint>

namespace lockstep {

/// What of a model bears on how finely its steps are cut.
struct ModelTraits {
    std::int64_t parameters = 0;
    /// Multiplications of products and convolutions in one sample's forward pass; 0: not known.
    std::uint64_t products = 0;
    bool looks_across_samples = false;  ///< of a leaf, as batch norm and mixup do
};

/// V where nobody said it: as many as cost little where leaves are computed together, or as few as
/// `ranks` need. Up to it V does not depend on them, nor ever on how fast a machine is: the same
/// command has the same V, and so the same bits, everywhere.
int default_virtual_ranks(const TrainSettings& settings,
                          std::int64_t samples,
                          const ModelTraits& model,
                          int ranks);

}  // namespace lockstep
