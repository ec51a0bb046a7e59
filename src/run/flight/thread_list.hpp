// SPDX-License-Identifier: Apache-2.0
// The states of this process's threads, as the kernel shows them.
#pragma once

#include <string>

namespace lockstep {

/// Returns one line per thread: id, name, state, and the kernel function in which it waits.
std::string thread_list();

}  // namespace lockstep
