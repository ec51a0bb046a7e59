// SPDX-License-Identifier: Apache-2.0
/// @file
/// Signals as a flag that the step loop reads. Handlers do nothing else.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include <signal.h>

namespace lockstep {

/// A request from outside to stop this process, the weakest first.
enum class StopRequest : int {
    none = 0,
    save_and_requeue = 1,  ///< USR1, USR2, TERM, HUP: save, exit 75
    /// INT: save, exit 130. An INT more than a second after the first ends the process at once; a
    /// sooner one is the same request, because timeout(1) sends it twice.
    interrupt = 2,
};

/// From now on USR1, USR2, TERM and HUP stay pending until somebody takes them: they end neither
/// this process nor the program that it becomes. A HUP that is ignored (nohup) stays ignored.
void hold_stop_signals();

/// From now on a write to a pipe without a reader fails with EPIPE and does not end this process.
/// Programs that it starts or becomes are ended as usual.
void outlive_readers();

/// From now on a write beyond the limit of a file's size (ulimit -f) fails with EFBIG and does not
/// end this process. Programs that it starts or becomes are ended as usual.
void outlive_file_limits();

/// Unblocks the held signals on the calling thread: for a child before its program starts.
void release_stop_signals();

/// Installs handlers for USR1, USR2, TERM, HUP and INT for its lifetime and then restores the old
/// ones. Held signals arrive at once. Later signals are held again, or dropped if a thread that
/// began in its lifetime takes them: held signals never end the process. An ignored HUP stays
/// ignored. One guard at a time.
class SignalGuard {
  public:
    /// The effect of a second request to save and stop before mirror_signals_to(). It is only
    /// counted, or it ends the process at once with 75, because nothing has begun yet.
    enum class SecondRequest { counts, ends };

    /// `second` applies until mirror_signals_to() is called.
    explicit SignalGuard(SecondRequest second = SecondRequest::counts);
    ~SignalGuard();
    SignalGuard& operator=(SignalGuard&&) = delete;

  private:
    sigset_t blocked_before_;
};

/// Returns the strongest request so far. Async-signal-safe, any thread.
StopRequest stop_requested();

/// Returns the number of requests to save and stop in this SignalGuard's lifetime. Signals within a
/// second count once: launchers and batch systems send the same one twice. Async-signal-safe.
int stop_requests();

/// From now on the handlers of a SignalGuard also store the number of each signal in `word`, which
/// may be memory that outlives the process. nullptr ends it. Must not be called while signals may
/// arrive.
void mirror_signals_to(std::atomic<std::uint64_t>* word);

/// Stores `signal` in that word, if there is one. Async-signal-safe.
void mirror_signal(int signal);

/// Signals that end a process for a fault of its own code.
inline constexpr std::array crash_signals{SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE};

/// Returns true if `signal` is one of them.
bool is_crash(int signal);

/// Asks the kernel to kill this process when its parent dies (PR_SET_PDEATHSIG). Exits at once if
/// the parent `expected_parent` is gone already.
void die_with_parent(int expected_parent);

}  // namespace lockstep
