// SPDX-License-Identifier: Apache-2.0
/// @file
/// Signals as a flag that the step loop reads; nothing else happens in a handler.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include <signal.h>

namespace lockstep {

/// What the outside asks of this process, weakest first.
enum class StopRequest : int {
    none = 0,
    save_and_requeue = 1,  ///< USR1, USR2, TERM, HUP: save, exit 75
    interrupt = 2,         ///< INT: save, exit 130; a second INT ends the process at once
};

/// From now on USR1, USR2, TERM and HUP wait: none ends this process, nor the program that it
/// becomes, before somebody takes them. A HUP that is ignored (nohup) stays so.
void hold_stop_signals();

/// From now on a write to a pipe without a reader fails with EPIPE and does not end this
/// process. Programs that it starts or becomes are ended as usual.
void outlive_readers();

/// Lets signals that are held reach the calling thread again: for a child before its program
/// starts.
void release_stop_signals();

/// Installs handlers for USR1, USR2, TERM, HUP and INT for its lifetime and puts the old ones back.
/// Signals that were held come at once; what comes after its lifetime is held again, or dropped
/// where a thread that began in its lifetime takes it: held signals never end the process. An
/// ignored HUP stays ignored. One at a time.
class SignalGuard {
  public:
    /// What a second request to save and stop does before mirror_signals_to(): it only counts, or
    /// ends the process at once, with 75, for nothing has begun yet.
    enum class SecondRequest { counts, ends };

    /// `second` holds until mirror_signals_to() is called.
    explicit SignalGuard(SecondRequest second = SecondRequest::counts);
    ~SignalGuard();
    SignalGuard(const SignalGuard&) = delete;
    SignalGuard& operator=(const SignalGuard&) = delete;

  private:
    sigset_t blocked_before_;
};

/// The strongest request so far. Async-signal-safe, any thread.
StopRequest stop_requested();

/// How often the outside asked to save and stop, in this SignalGuard's lifetime. Signals within a
/// second are one: launchers and batch systems send the same one twice. Async-signal-safe.
int stop_requests();

/// From now on the handlers of a SignalGuard also store the number of each signal in `word`, which
/// may be memory that outlives the process. nullptr ends it; not to be called while signals come.
void mirror_signals_to(std::atomic<std::uint64_t>* word);

/// Stores `signal` there, if there is such a word. Async-signal-safe.
void mirror_signal(int signal);

/// Signals that end a process for a fault of its own code.
inline constexpr std::array crash_signals{SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE};

/// Whether `signal` is one of them.
bool is_crash(int signal);

/// Asks the kernel to kill this process when its parent dies (PR_SET_PDEATHSIG), and exits at
/// once if the parent `expected_parent` is gone already.
void die_with_parent(int expected_parent);

}  // namespace lockstep
