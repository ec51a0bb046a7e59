// SPDX-License-Identifier: Apache-2.0
// The reports of a run: step lines, metrics, events, progress.
#pragma once

#include "lockstep/core/clock.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/run/events.hpp"
#include "lockstep/run/metrics.hpp"
#include "lockstep/run/progress.hpp"
#include "lockstep/run/step_budget.hpp"
#include "lockstep/run/step_line.hpp"
#include "lockstep/run/tensorboard.hpp"
#include "lockstep/run/trace.hpp"

#include "loop/loop.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep {

/// With --trace: what this rank does in the steps asked for, moment by moment. It
/// listens to the clock while such steps last, and takes collectives from the flight record, where
/// they are noted anyway: other steps cost a comparison. A step is from the end of the one before
/// to its own, as in rank-NNNNN.steps.
class StepTracer {
  public:
    /// Of a loop that is about to begin. `parts` outlives this.
    explicit StepTracer(const LoopParts& parts);

    /// Writes what there is, where the loop ends amid the steps asked for.
    ~StepTracer();
    StepTracer(const StepTracer&) = delete;
    StepTracer& operator=(const StepTracer&) = delete;

    /// After each step. After the last one that was asked for it writes the trace.
    void after_step();

  private:
    /// Where the clocks stood at the same moment.
    struct Moment {
        double s = 0;              ///< of now_s()
        std::int64_t unix_ns = 0;  ///< since 1970
    };

    bool is_wanted(std::int64_t step) const;
    std::int64_t unix_ns(double s) const;
    void begin(double since_s);
    void enter(const PhaseMark& begun);
    void close_phase(double now);
    void close_step(double now);
    void take_collectives();
    TraceSlice slice_of(const FlightEntry& entry) const;
    void add(TraceSlice slice);
    void write();

    const LoopParts& parts_;
    std::optional<PhaseListener> listener_;  ///< while steps are traced
    StepTrace trace_;
    Moment began_;
    PhaseMark phase_;  ///< that is going on
    std::int64_t step_ = 0;
    double step_since_s_ = 0;                   ///< when that began
    FlightRecorder::Ticket next_;               ///< the first collective that was not looked at
    std::vector<FlightRecorder::Ticket> open_;  ///< those without an end when they were
};

/// Every rank writes its own step lines; rank 0 also the terminal, metrics.jsonl and events.
class Reporter {
  public:
    explicit Reporter(const LoopParts& parts);

    /// Adds the time after the last step to that step.
    ~Reporter();
    Reporter(const Reporter&) = delete;
    Reporter& operator=(const Reporter&) = delete;

    /// Call after each step. `rate` is its learning rate.
    void after_step(const StepOutcome& outcome, std::int64_t samples, double rate);

    /// Reports the steps that have not been reported yet. Call it before long operations.
    void flush();

    /// Call after an evaluation, which has taken the time since flush().
    void after_evaluation(const Evaluation& evaluation);

    /// Calls flush() and removes the live line.
    void finish();

  private:
    void check_still_ours();
    PhaseSeconds take_phases();
    void close_step();
    void keep_phases();
    void report(double rate);
    void log_steps(StepsEvent event);
    DataReport data_report(double elapsed_s);
    void report_epoch();
    void report_weights();
    void report_noise_scale();
    void note_skipped(double loss);
    void say_skipped();
    bool is_due() const;

    const LoopParts& parts_;
    const JobProgress& at_;
    Progress progress_;
    std::optional<MetricsFile> metrics_;
    std::optional<EventFile> events_;
    Histogram step_ms_;  ///< steps since the last report; rank 0
    std::optional<StepBudgetFile> budgets_;
    StepTracer tracer_;
    PhaseSeconds phases_{};       ///< since the last report, without evaluations
    PhaseSeconds since_step_{};   ///< since the last step's end
    std::int64_t last_step_ = 0;  ///< last step of this start; 0: none yet
    double since_s_, epoch_since_s_, loss_ = 0, rate_ = 0, gradient_norm_ = 0;
    std::int64_t samples_ = 0, steps_ = 0, epoch_samples_ = 0;
    std::int64_t losses_ = 0;  ///< number of finite losses in `loss_`
    NoiseScale noise_scale_;   ///< noise scale of this start
    std::int64_t skipped_ = 0, skipped_said_ = 0, last_skipped_ = 0;
    std::optional<double> skipped_said_at_s_, warned_at_s_;  ///< times of reports on skipped steps
    Level skipped_level_ = Level::info;                      ///< level of reports still to come
    bool is_first_ = true, has_lost_logs_ = false;
    StartSums sums_;    ///< sums of this start
    StreamStats data_;  ///< state at the last report
};

}  // namespace lockstep
