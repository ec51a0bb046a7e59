// SPDX-License-Identifier: Apache-2.0
// Waiting for another process on the same node: spin briefly, then let others run.
#pragma once

#include <sched.h>

namespace lockstep {

inline void pause_core() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

/// Returns when `done()` is true. About 200 pauses cost less than a system call; after that the
/// awaited rank may need this very core.
template <class Done>
void spin_until(Done&& done) {
    for (int spins = 0; !done(); ++spins) {
        if (spins < 200)
            pause_core();
        else
            ::sched_yield();
    }
}

}  // namespace lockstep
