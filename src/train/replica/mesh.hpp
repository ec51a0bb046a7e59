// SPDX-License-Identifier: Apache-2.0
// Which ranks do something together.
#pragma once

#include "lockstep/comm/communicator.hpp"

namespace lockstep {

/// Groups that this rank is in.
struct Mesh {
    Communicator world;  ///< of the run: agreement, watchdog, run directory, checkpoints
    Communicator data;   ///< that divides a batch: leaves, sums of gradients, norms, evaluation
};

}  // namespace lockstep
