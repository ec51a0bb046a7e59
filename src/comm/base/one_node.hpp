// SPDX-License-Identifier: Apache-2.0
// Whether ranks can share memory.
#pragma once

#include "lockstep/comm/communicator.hpp"

namespace lockstep {

/// Collective. The same answer on all ranks.
bool are_on_one_node(const Communicator& ranks);

/// Error E631 if they are not.
void check_one_node(bool are_on_one_node, const Communicator& ranks);

}  // namespace lockstep
