// SPDX-License-Identifier: Apache-2.0
/// @file
/// Time in seconds, and its division into phases.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Monotonic seconds; only differences mean anything.
double now_s();

/// Seconds since 1970 (UTC).
double unix_time_s();

/// "2026-01-31T12:34:56.789Z" of `unix_s`.
std::string utc_text(double unix_s);

/// Seconds since 1970 of what utc_text() gives, or of less of it: "2026-01-31", "2026-01-31T12:34",
/// "2026-01-31 12:34:56". Nothing for other texts.
std::optional<double> parse_utc(std::string_view text);

/// "4m12s", "1h03m", "12.3s", "45ms": at most two units.
std::string duration_text(double seconds);

/// What a rank does with its time. Every moment belongs to exactly one phase.
enum class Phase : std::size_t {
    data,        ///< waiting for a batch and preparing it
    forward,     ///< model and loss
    backward,    ///< autograd, clearing and merging of leaves' gradients included; sums are not
    comm,        ///< summing gradients: what backward and the update stood still for
    wait,        ///< waiting for other ranks
    update,      ///< optimizer
    checkpoint,  ///< snapshot and writing
    evaluate,    ///< evaluation passes
    other,       ///< everything else (logging, set-up)
    copy,        ///< waiting for samples on their way to the GPU; numbers of phases are in files
    count,
};
std::string_view phase_name(Phase phase);  ///< the enumerator's word, as in logs and metrics

/// Whether the model or the optimizer is at work: no other rank, no disk and no evaluation.
constexpr bool is_computing(Phase phase) {
    return phase == Phase::forward || phase == Phase::backward || phase == Phase::update;
}

/// Whether the phase may last for long with good reason, on one rank more than on another: saving,
/// evaluating, and waiting there for the others.
constexpr bool may_be_long(Phase phase) {
    return phase == Phase::checkpoint || phase == Phase::evaluate || phase == Phase::wait;
}

/// A phase and when it began, on the clock of now_s().
struct PhaseMark {
    Phase phase = Phase::other;  ///< what is going on
    double since_s = 0;          ///< since when, by now_s()
};

/// Both in one word, so that another thread or process never sees half of it: the phase in the
/// upper 8 bits, microseconds below. A word that was never packed reads as Phase::other.
std::uint64_t packed(const PhaseMark& mark);

/// What packed() made; see there.
PhaseMark unpacked_phase(std::uint64_t word);

using PhaseSeconds = std::array<double, static_cast<std::size_t>(Phase::count)>;  ///< by Phase

class PhaseListener;

/// Splits wall time into phases: enter() ends the current phase and begins another, so that the
/// phases add up to the wall time by construction. One thread only.
class PhaseClock {
  public:
    PhaseClock() : since_(now_s()) {}

    /// Begins `phase`; returns the phase it ends, to be given back by the caller when it is done.
    Phase enter(Phase phase);

    /// Moves up to `seconds` from one phase to another: a part that only the callee could measure.
    void reassign(Phase from, Phase to, double seconds);

    /// Seconds in each phase since construction or the last call; starts again.
    PhaseSeconds take();

    /// When, by now_s(), the current phase began or the last take() was. What take() gave sums to
    /// the seconds from one such moment to the next, however late the caller looks.
    double since_s() const { return since_; }

    /// In each phase since the last take(), up to now.
    PhaseSeconds seconds();

    /// Puts `measured` in place of what was counted since seconds() gave `before`. What that was
    /// more is `rest`'s; if it was less, all of `measured` is scaled down.
    void correct(const PhaseSeconds& before, PhaseSeconds measured, Phase rest);

    /// From now on `word` always holds the packed current phase. It outlives the clock or the next
    /// call; nullptr ends it.
    void mirror_to(std::atomic<std::uint64_t>* word);

  private:
    friend class PhaseListener;

    std::atomic<std::uint64_t>* mirror_ = nullptr;
    std::vector<const PhaseListener*> listeners_;
    PhaseSeconds seconds_{};
    Phase current_ = Phase::other;
    double since_;
};

/// Is notified of each phase that a clock begins, as long as it lives; any number of them.
class PhaseListener {
  public:
    using Told = std::function<void(const PhaseMark&)>;  ///< the phase, and since when

    /// `clock` outlives this. `told` neither makes nor ends listeners of it.
    PhaseListener(PhaseClock& clock, Told told);
    ~PhaseListener();
    PhaseListener(const PhaseListener&) = delete;
    PhaseListener& operator=(const PhaseListener&) = delete;

  private:
    friend class PhaseClock;

    PhaseClock& clock_;
    Told told_;
};

/// Enters a phase for the length of a scope and returns to the one before.
class PhaseScope {
  public:
    /// `clock` outlives the scope.
    PhaseScope(PhaseClock& clock, Phase phase) : clock_(clock), before_(clock.enter(phase)) {}
    ~PhaseScope() { clock_.enter(before_); }
    PhaseScope(const PhaseScope&) = delete;
    PhaseScope& operator=(const PhaseScope&) = delete;

  private:
    PhaseClock& clock_;
    Phase before_;
};

}  // namespace lockstep
