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

#include "loop/loop.hpp"

#include <cstdint>
#include <memory>
#include <optional>

namespace lockstep {

class StepTracer;

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
    std::unique_ptr<StepTracer> tracer_;
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
