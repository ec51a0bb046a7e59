// SPDX-License-Identifier: Apache-2.0
// What the threads of this process are doing, as far as the kernel tells.
#pragma once

#include <string>

namespace lockstep {

/// One line a thread: id, name, state, and the kernel function it waits in.
std::string thread_list();

}  // namespace lockstep
