// SPDX-License-Identifier: Apache-2.0
// Waiting for another process on the same node: spin briefly, then let others run.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/clock.hpp"

#include <limits>

#include <sched.h>

namespace lockstep {

/// The time for which a rank spins before it yields its core.
enum class Patience {
    /// For messages: each check is a system call, and the kernel may need this core to deliver
    /// them.
    none,
    /// Ranks outnumber cores: the awaited rank may need this very core.
    little,
    /// Each rank has a core. A core yielded to another process is lost for that one's whole time
    /// slice.
    much,
};

/// Collective over ranks of one node. Compares their number with that of their cores.
Patience patience_of(const Communicator& ranks);

inline constexpr double no_deadline = std::numeric_limits<double>::infinity();

inline void pause_core() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

/// A few dozen pauses cost less than a system call and a change of process.
inline int spins_before_yielding(Patience patience) {
    if (patience == Patience::none) return 0;
    return patience == Patience::much ? 5000 : 50;
}

/// Waits until `done()` is true. Returns false if that took longer than `limit_s` seconds.
template <class Done>
bool spin_until(Done&& done, Patience patience = Patience::little, double limit_s = no_deadline) {
    for (int spins = spins_before_yielding(patience); spins > 0; --spins) {
        if (done()) return true;
        pause_core();
    }
    const double end = now_s() + limit_s;
    while (!done()) {
        ::sched_yield();
        if (now_s() > end) return done();
    }
    return true;
}

}  // namespace lockstep
