// SPDX-License-Identifier: Apache-2.0
/// @file
/// Ends a rank that waits too long, and says whom it waited for.
#pragma once

#include "lockstep/run/flight_recorder.hpp"
#include "lockstep/run/node_watch.hpp"
#include "lockstep/run/verdict.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace lockstep {

/// How long a collective may last, from when this rank announced it; four times as long while it
/// saves or evaluates, and during set-up.
struct WatchdogSettings {
    double warn_s = 60;    ///< after so long: Stage::warn
    double dump_s = 120;   ///< after so long: Stage::dump
    double abort_s = 600;  ///< after so long: Stage::abort; 0 or less: never
    double init_s = 2400;  ///< the same as abort_s, until FlightRecorder::mark_running()
    bool is_patient() const { return abort_s <= 0; }  ///< waits for ever

    /// Warns at 1/10 and dumps at 1/5 of `abort_s`; four times as long for setting up.
    static WatchdogSettings within(double abort_s);
};

/// How far a wait has gone.
enum class Stage { none, warn, dump, abort };

/// What the watchdog tells its owner: from a thread of its own, while others may be stuck.
struct WatchReport {
    Stage stage = Stage::none;  ///< that the wait has come to
    bool speaks = false;        ///< this rank is the one to tell the user
    Verdict verdict;            ///< who keeps the others waiting
};

/// Adds up how long one collective has been pending. Time in which this process itself was not
/// running does not count.
class StuckClock {
  public:
    /// `period_s`: how often update() will be called.
    explicit StuckClock(double period_s) : period_s_(period_s) {}

    /// To be called every `period_s` or so, with what pending() gives; returns the seconds.
    double update(const std::optional<FlightEntry>& pending, double now_s);
    void reset() { waited_s_ = 0; }  ///< begins again at 0

  private:
    double period_s_, waited_s_ = 0, last_s_ = 0;
    std::uint32_t channel_ = 0;
    std::uint64_t seq_ = 0;
};

/// Two threads that call no MPI and take no lock that the watched threads take. One counts and
/// beats; the other reads files: other ranks' rings, from the recorder's folder, and /proc. A rank
/// of this node that is gone without a word ends this one at once; otherwise the stages do, of a
/// collective that is pending, of a phase of computing (is_computing()) that does not end, and of a
/// set-up that comes to no further collective. Once stop_requests() is 1 such a phase has a minute,
/// and once it is 2, a second. In the end one rank alone writes the verdict to stderr and
/// verdict.json, `listener` is called, and the process exits with 76, at most 1.5 s after its time,
/// whatever else hangs.
class Watchdog {
  public:
    /// Called on the watchdog's thread. It may hang: the process ends all the same.
    using Listener = std::function<void(const WatchReport&)>;

    /// `recorder` and `nodes`, if there is one, outlive this. A rank that `nodes` has lost ends
    /// this one as a rank of this node does that is gone.
    Watchdog(FlightRecorder& recorder,
             WatchdogSettings settings,
             Listener listener,
             const NodeWatch* nodes = nullptr);
    ~Watchdog();
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
