// SPDX-License-Identifier: Apache-2.0
// The life of a communicator.
#pragma once

#include "lockstep/comm/nccl_communicator.hpp"

namespace lockstep {

/// Whether a communicator may go from one state to the other.
bool may_follow(NcclState from, NcclState to);

}  // namespace lockstep
