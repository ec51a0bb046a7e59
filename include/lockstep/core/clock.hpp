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

/// Returns monotonic seconds; only differences have a meaning.
double now_s();

/// Returns the processor time of this thread, without waits for a core or for the host of a virtual
/// machine.
double thread_processor_s();

/// Returns seconds since 1970 (UTC).
double unix_time_s();

/// Returns `unix_s` as text: "2026-01-31T12:34:56.789Z".
std::string utc_text(double unix_s);

/// Returns the seconds since 1970 of a text of utc_text(), or of a shorter form: "2026-01-31",
/// "2026-01-31T12:34", "2026-01-31 12:34:56". Returns nothing for other texts.
std::optional<double> parse_utc(std::string_view text);

/// Returns a duration in at most two units: "4m12s", "1h03m", "12.3s", "45ms".
std::string duration_text(double seconds);

/// The use of a rank's time. Every moment belongs to exactly one phase.
enum class Phase : std::size_t {
    data,        ///< waiting for a batch and preparing it
    forward,     ///< model and loss
    backward,    ///< autograd, with clearing and merging of the leaves' gradients but without sums
    comm,        ///< sums of gradients that backward and the update waited for
    wait,        ///< waiting for other ranks
    update,      ///< optimizer
    checkpoint,  ///< snapshot and writing
    evaluate,    ///< evaluation passes
    other,       ///< everything else (logging, set-up)
    copy,  ///< waiting for copies of samples to the GPU. Files hold phases' numbers: append only.
    count,
};
std::string_view phase_name(Phase phase);  ///< the enumerator's name, as in logs and metrics

/// Returns true in phases that only run the model or the optimizer: no other rank, disk or
/// evaluation is involved.
constexpr bool is_computing(Phase phase) {
    return phase == Phase::forward || phase == Phase::backward || phase == Phase::update;
}

/// Returns true if a phase may last long without a fault, on some ranks longer than on others:
/// saving, evaluating, and waiting for ranks that do.
constexpr bool may_be_long(Phase phase) {
    return phase == Phase::checkpoint || phase == Phase::evaluate || phase == Phase::wait;
}

/// A phase and when it began, on the clock of now_s().
struct PhaseMark {
    Phase phase = Phase::other;  ///< the current phase
    double since_s = 0;          ///< its begin, by now_s()
};

/// Packs both into one word, so that another thread or process never sees half of it: the phase in
/// the upper 8 bits, microseconds below. A word that packed() did not make reads as Phase::other.
std::uint64_t packed(const PhaseMark& mark);

/// Reverses packed().
PhaseMark unpacked_phase(std::uint64_t word);

/// The seconds of each phase.
struct PhaseSeconds : std::array<double, static_cast<std::size_t>(Phase::count)> {
    using array::operator[];
    /// Returns the seconds of `phase`.
    double& operator[](Phase phase) { return (*this)[static_cast<std::size_t>(phase)]; }
    /// Returns the seconds of `phase`.
    double operator[](Phase phase) const { return (*this)[static_cast<std::size_t>(phase)]; }
    PhaseSeconds& operator+=(const PhaseSeconds& more);  ///< by phase
    double sum() const;                                  ///< of all phases
};

class PhaseListener;

/// Splits wall time into phases. enter() ends the current phase and begins another, so the phases
/// always add up to the wall time. One thread only.
class PhaseClock {
  public:
    PhaseClock() : since_(now_s()) {}

    /// Begins `phase` and returns the phase that it ends. The caller enters that one again when it
    /// is done.
    Phase enter(Phase phase);

    /// Moves up to `seconds` from one phase to another, for a part that the callee measured.
    void reassign(Phase from, Phase to, double seconds);

    /// Returns the seconds in each phase since construction or the last call, and starts again.
    PhaseSeconds take();

    /// Returns the later of the begin of the current phase and the last take(), by now_s(). The
    /// seconds of take() add up to the time between two such moments, however late the caller asks.
    double since_s() const { return since_; }

    /// Returns the seconds in each phase since the last take().
    PhaseSeconds seconds();

    /// Replaces what was counted since seconds() returned `before` by `measured`. Any time beyond
    /// `measured` goes to `rest`; if less time passed, all of `measured` is scaled down.
    void correct(const PhaseSeconds& before, PhaseSeconds measured, Phase rest);

    /// From now on `word` always holds the packed current phase. It must outlive the clock or the
    /// next call; nullptr ends the mirroring.
    void mirror_to(std::atomic<std::uint64_t>* word);

  private:
    friend class PhaseListener;

    std::atomic<std::uint64_t>* mirror_ = nullptr;
    std::vector<const PhaseListener*> listeners_;
    PhaseSeconds seconds_{};
    Phase current_ = Phase::other;
    double since_;
};

/// Is notified of each phase that a clock begins, as long as the listener lives. A clock may have
/// several.
class PhaseListener {
  public:
    using Told = std::function<void(const PhaseMark&)>;  ///< the phase and its begin

    /// `clock` must outlive the listener. `told` must neither create nor destroy listeners of
    /// `clock`.
    PhaseListener(PhaseClock& clock, Told told);
    ~PhaseListener();
    PhaseListener& operator=(PhaseListener&&) = delete;

  private:
    friend class PhaseClock;

    PhaseClock& clock_;
    Told told_;
};

/// Enters a phase for the length of a scope and then returns to the previous one.
class PhaseScope {
  public:
    /// `clock` outlives the scope.
    PhaseScope(PhaseClock& clock, Phase phase) : clock_(clock), before_(clock.enter(phase)) {}
    ~PhaseScope() { clock_.enter(before_); }
    PhaseScope& operator=(PhaseScope&&) = delete;

  private:
    PhaseClock& clock_;
    Phase before_;
};

}  // namespace lockstep
