// SPDX-License-Identifier: Apache-2.0
// How long a rank waits for another before it offers its core to others.
#pragma once

#include "lockstep/comm/communicator.hpp"

namespace lockstep {

enum class Patience {
    /// For messages: each look is a system call, and the kernel may need this core to deliver them.
    none,
    /// Ranks outnumber cores: the awaited rank may need this very core.
    little,
    /// Each rank has a core. Who yields it to a stranger waits for that one's whole time slice.
    much,
};

/// Collective over ranks of one node. Compares their number with the cores that they may use.
Patience patience_of(const Communicator& ranks);

}  // namespace lockstep
