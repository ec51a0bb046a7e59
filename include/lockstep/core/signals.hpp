// SPDX-License-Identifier: Apache-2.0
// Signals as a flag that the step loop reads; nothing else happens in a handler.
#pragma once

namespace lockstep {

/// What the outside asks of this process, weakest first.
enum class StopRequest : int {
    none = 0,
    save_and_requeue = 1,  ///< USR1, USR2, TERM: save, exit 75
    interrupt = 2,         ///< INT: save, exit 130; a second INT ends the process at once
};

/// Installs handlers for USR1, USR2, TERM and INT for its lifetime and puts the old ones back.
/// One at a time.
class SignalGuard {
  public:
    SignalGuard();
    ~SignalGuard();
    SignalGuard(const SignalGuard&) = delete;
    SignalGuard& operator=(const SignalGuard&) = delete;
};

/// The strongest request so far. Async-signal-safe, any thread.
StopRequest stop_requested();

/// Asks the kernel to kill this process when its parent dies (PR_SET_PDEATHSIG), and exits at
/// once if the parent `expected_parent` is gone already.
void die_with_parent(int expected_parent);

}  // namespace lockstep
