// SPDX-License-Identifier: Apache-2.0
// The reports of a run: step lines, metrics, events, progress, and the trace of the steps that
// --trace asks for. loop.cpp alone has one.
//
// Tested: e2e/run_directory_test.cpp, e2e/numbers_test.cpp, e2e/traces_test.cpp.
#pragma once

#include "lockstep/core/host_name.hpp"
#include "lockstep/plan/contract.hpp"
#include "lockstep/run/events.hpp"
#include "lockstep/run/memory.hpp"
#include "lockstep/run/progress.hpp"
#include "lockstep/run/run_figures.hpp"
#include "lockstep/run/step_budget.hpp"
#include "lockstep/run/tensorboard.hpp"
#include "lockstep/run/trace.hpp"

#include "loop/loop.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <torch/torch.h>
#include <unistd.h>

namespace lockstep {

/// With --trace: what this rank does in the steps asked for, moment by moment. It listens to the
/// clock while such steps last, and takes collectives from the flight record, where they are noted
/// anyway: other steps cost a comparison. A step is from the end of the one before to its own, as
/// in rank-NNNNN.steps.
class StepTracer {
  public:
    /// Of a loop that is about to begin. `parts` outlives this.
    explicit StepTracer(const LoopParts& parts)
        : parts_(parts),
          trace_{.rank = parts.start.ranks.rank(),
                 .ranks = parts.start.ranks.size(),
                 .host = host_name(),
                 .pid = ::getpid(),
                 .steps = parts.start.settings.trace} {
        if (is_wanted(parts.course.progress.step + 1)) begin(now_s());
    }

    /// Writes what there is, where the loop ends amid the steps asked for.
    ~StepTracer() {
        if (listener_) write();
    }
    StepTracer& operator=(StepTracer&&) = delete;

    /// After each step. After the last one that was asked for it writes the trace.
    void after_step() {
        if (listener_) {
            close_step(parts_.run.clock.since_s());
            if (!is_wanted(step_)) write();
        } else if (is_wanted(parts_.course.progress.step + 1)) {
            begin(parts_.run.clock.since_s());
        }
    }

  private:
    bool is_wanted(std::int64_t step) const {
        return step >= trace_.steps.first && step <= trace_.steps.last;
    }

    std::int64_t unix_ns(double s) const {
        return began_unix_ns_ + std::llround((s - began_s_) * 1e9);
    }

    void begin(double since_s) {
        began_s_ = now_s();
        began_unix_ns_ = std::llround(unix_time_s() * 1e9);
        step_ = parts_.course.progress.step + 1;
        step_since_s_ = since_s;
        phase_ = {Phase::other, since_s};
        next_ = parts_.run.recorder().next();
        listener_.emplace(parts_.run.clock, [this](const PhaseMark& begun) {
            if (begun.phase == phase_.phase) return;
            close_phase(begun.since_s);
            phase_.phase = begun.phase;
        });
    }

    void close_phase(double now) {
        const double since_s = std::exchange(phase_.since_s, now);
        if (now <= since_s) return;
        add({.kind = SliceKind::phase,
             .name = std::string(phase_name(phase_.phase)),
             .begin_ns = unix_ns(since_s),
             .end_ns = unix_ns(now)});
    }

    // A phase that goes on is cut in two: steps hold their phases whole.
    void close_step(double now) {
        close_phase(now);
        take_collectives();
        add({.kind = SliceKind::step,
             .name = fmt::format("ProfilerStep#{}", step_),
             .begin_ns = unix_ns(step_since_s_),
             .end_ns = unix_ns(now)});
        step_since_s_ = now;
        step_ = parts_.course.progress.step + 1;
    }

    // Those that a GPU still has are looked at again after the next step.
    void take_collectives() {
        std::vector<FlightRecorder::Ticket> tickets = std::exchange(open_, {});
        const FlightRecorder::Ticket next = parts_.run.recorder().next();
        for (; next_.index < next.index; ++next_.index) tickets.push_back(next_);
        for (const FlightRecorder::Ticket& ticket : tickets) {
            const std::optional<FlightEntry> entry = parts_.run.recorder().find(ticket);
            if (!entry) {
                ++trace_.dropped;  // the ring came round within a step
            } else if (entry->ended_s == 0) {
                open_.push_back(ticket);
            } else {
                const std::string_view op = name_of(entry->call.op);
                const int bucket = entry->call.bucket;
                add({.kind = SliceKind::collective,
                     .name = bucket < 0 ? std::string(op) : fmt::format("{} {}", op, bucket),
                     .begin_ns = unix_ns(entry->enqueued_s),
                     .end_ns = unix_ns(entry->ended_s),
                     .channel = entry->channel,
                     .seq = entry->seq,
                     .bucket = bucket,
                     .bytes = entry->call.bytes,
                     .waited_ns = std::llround((entry->ended_s - entry->started_s) * 1e9)});
            }
        }
    }

    void add(TraceSlice slice) {
        slice.step = step_;
        if (trace_.slices.size() < StepTrace::most_slices)
            trace_.slices.push_back(std::move(slice));
        else
            ++trace_.dropped;
    }

    // No step fails for what is only looked at.
    void write() {
        listener_.reset();
        const fs::path path =
            trace_path(parts_.run.paths.logs(parts_.run.incarnation), parts_.start.ranks.rank());
        try {
            write_trace(path, trace_);
            if (parts_.start.ranks.is_root())
                once(Level::info,
                     "traced {}: lockstep trace merge {}",
                     trace_steps_text(trace_.steps),
                     parts_.run.paths.root.string());
        } catch (const std::exception& failed) {
            here(Level::warn, "the trace is lost: {}", as_error(failed).what());
        }
        trace_.slices = {};
    }

    const LoopParts& parts_;
    std::optional<PhaseListener> listener_;  ///< while steps are traced
    StepTrace trace_;
    double began_s_ = 0;              ///< of now_s(), at the same moment as
    std::int64_t began_unix_ns_ = 0;  ///< since 1970
    PhaseMark phase_;                 ///< that is going on
    std::int64_t step_ = 0;
    double step_since_s_ = 0;                   ///< when that began
    FlightRecorder::Ticket next_;               ///< the first collective that was not looked at
    std::vector<FlightRecorder::Ticket> open_;  ///< those without an end when they were
};

/// Every rank writes its own step lines; rank 0 also the terminal, metrics.jsonl and events.
class Reporter {
  public:
    explicit Reporter(const LoopParts& parts)
        : parts_(parts),
          settings_(parts.start.settings),
          at_(parts.course.progress),
          progress_("training", static_cast<std::uint64_t>(parts.contract.length.total_steps)),
          tracer_(parts),
          since_s_(now_s()),
          epoch_since_s_(since_s_) {
        parts.run.clock.take();  // setting up is no step's time
        progress_.start_at(static_cast<std::uint64_t>(at_.step));
        budgets_.emplace(step_budgets_path(parts.run.paths.logs(parts.run.incarnation),
                                           parts.start.ranks.rank()));
        if (!parts.start.ranks.is_root()) return;
        metrics_.emplace(parts.run.paths.metrics(), at_.step);
        events_.emplace(parts.run.paths.root, at_.step);
        events_->add_text(at_.step, "run/settings", settings_text(settings_));
    }

    /// Adds the time after the last step to that step.
    ~Reporter() {
        take_phases();
        if (last_step_ > 0) keep_phases();
    }
    Reporter& operator=(Reporter&&) = delete;

    /// Call after each step. `rate` is its learning rate.
    void after_step(const StepOutcome& outcome, std::int64_t samples, double rate) {
        if (std::exchange(is_first_, false)) {
            log_event(FirstStepEvent{at_.step});
            epoch_since_s_ = now_s();  // rates leave the first step out: it warms caches up
        } else {
            epoch_samples_ += samples;
        }
        if (outcome.is_skipped) note_skipped(outcome.loss);
        if (std::isfinite(outcome.loss)) {
            loss_ += outcome.loss;
            ++losses_;
        }
        if (outcome.norms) noise_scale_.add(*outcome.norms);
        phases_ += take_phases();
        last_step_ = at_.step;
        if (events_) step_ms_.add(since_step_.sum() * 1e3);
        keep_phases();
        tracer_.after_step();
        rate_ = rate;
        gradient_norm_ = outcome.gradient_norm;
        samples_ += samples;
        ++steps_;
        const auto done = static_cast<std::uint64_t>(at_.step);
        if (is_due()) report();
        if (ends_epoch()) report_epoch();
        report_weights();
        if (has_live_terminal() && progress_.is_due())
            progress_.update(done, fmt::format("step {} | loss {:.4f}", done, outcome.loss));
    }

    /// Reports the steps that have not been reported yet. Call it before long operations.
    void flush() {
        if (steps_ > 0) report();
    }

    /// Call after an evaluation, which has taken the time since flush().
    void after_evaluation(const Evaluation& evaluation) {
        check_still_ours();
        take_phases();
        const double now = parts_.run.clock.since_s();
        log_event(EvaluationEvent{at_.step, now - since_s_});
        sums_.evaluate_s += now - since_s_;
        since_s_ = epoch_since_s_ = now;
        once(Level::info,
             "epoch {} | test {} | test loss {:.4f}",
             at_.epoch,
             evaluation.text,
             evaluation.metrics.at("loss"));
        if (!parts_.start.ranks.is_root()) return;
        if (!evaluation.confusion.empty())
            write_file_atomically(parts_.run.paths.confusion(), evaluation.confusion);
        EvaluationMetrics line{.step = at_.step, .epoch = at_.epoch, .figures = {}};
        for (const auto& [name, value] : evaluation.metrics) {
            line.figures["test_" + name] = value;
            events_->add(at_.step, "test/" + name, value);
        }
        metrics_->append(json_of_record(line));
    }

    /// Calls flush() and removes the live line.
    void finish() {
        flush();
        if (skipped_ > skipped_said_) say_skipped();
        if (has_live_terminal()) progress_.finish();
    }

  private:
    static constexpr double report_every_s = 30;

    bool scales_loss() const { return settings_.precision == Precision::fp16; }
    bool ends_epoch() const { return at_.step % parts_.contract.length.steps_per_epoch == 0; }
    bool is_due() const {
        const std::int64_t every = settings_.log_every;
        return every > 0 ? at_.step % every == 0
                         : now_s() - since_s_ >= report_every_s || ends_epoch();
    }

    // Since the last call. Every second is of some step, but those of evaluations are of no report.
    PhaseSeconds take_phases() {
        const PhaseSeconds taken = parts_.run.clock.take();
        since_step_ += taken;
        return taken;
    }

    void keep_phases() {
        const double ended_unix_s = unix_time_s() - (now_s() - parts_.run.clock.since_s());
        const StepBudget budget{last_step_, ended_unix_s, std::exchange(since_step_, {})};
        budgets_->add(budget);
        parts_.course.stretches.add(budget);
    }

    // Reports the times of this rank's threads, without waiting.
    DataReport data_report(double elapsed_s) {
        const StreamStats now = parts_.course.stream->stats(),
                          spent = now - std::exchange(data_, now);
        return {.wait_s = spent.wait_s,
                .read_s = spent.read_s,
                .verify_s = spent.verify_s,
                .decode_s = spent.decode_s,
                .assemble_s = spent.assemble_s,
                .bytes_read = spent.bytes_read,
                .retries = spent.retries,
                .masked_samples = spent.masked_samples,
                .io_threads = spent.io_threads,
                .bound = std::string(binding_stage(spent, elapsed_s))};
    }

    // A start that SLURM has lost sight of ends here, before it writes into its successor's files.
    void check_still_ours() {
        if (!parts_.run.directory) return;
        parts_.run.directory->check_still_ours();
        std::error_code failed;
        const fs::path logs = parts_.run.paths.logs(parts_.run.incarnation);
        if (fs::exists(logs, failed) || failed || std::exchange(has_lost_logs_, true)) return;
        once(Level::warn,
             "'{}' is gone: the training continues without logs; checkpoints are not affected",
             logs.string());
    }

    void report() {
        check_still_ours();
        phases_ += take_phases();
        const double now = parts_.run.clock.since_s();
        const StepReport report{
            .epoch = at_.epoch,
            .step = at_.step,
            .loss = std::exchange(loss_, 0) / static_cast<double>(std::exchange(losses_, 0)),
            .lr = rate_,
            .samples_per_s = static_cast<double>(samples_) / (now - since_s_),
            .phases = std::exchange(phases_, {}),
            .memory_bytes = memory_use().resident_bytes};
        StepsEvent event{.report = report, .wall_s = now - since_s_};
        if (settings_.clip_norm > 0) event.gradient_norm = gradient_norm_;
        if (scales_loss() || settings_.on_nonfinite != NonFinite::stop)
            event.skipped_steps = skipped_;
        if (scales_loss()) event.loss_scale = at_.loss_scale.factor;
        event.noise_scale = noise_scale_.samples();
        const OverlapTimes times = parts_.engine.replica->take_overlap();
        event.comm_busy_s = times.busy_s;
        event.comm_exposed_s = times.exposed_s;
        event.copy_s = parts_.course.feed->take_copy_s();
        event.data = data_report(event.wall_s);
        // With sums, so that who asks for a run's status need not read all of a long log.
        const double save_s = report.phases[Phase::checkpoint];
        sums_.train_s += event.wall_s - save_s;
        sums_.save_s += save_s;
        add_links(parts_.course.links, parts_.engine.replica->take_links());
        sums_.links = parts_.course.links;
        event.so_far = sums_;
        log_event(event);
        write_log(Level::info,
                  parts_.start.ranks.is_root() ? Audience::once : Audience::here,
                  step_line(report),
                  fmt::format("step {}", at_.step));
        if (parts_.start.ranks.is_root()) {
            metrics_->append(json_of_record(event));
            events_->add(at_.step,
                         std::array{Scalar{"train/loss", report.loss},
                                    Scalar{"train/lr", report.lr},
                                    Scalar{"train/samples_per_s", report.samples_per_s}});
            events_->add_histogram(at_.step, "time/step_ms", std::exchange(step_ms_, {}));
        }
        since_s_ = now;
        samples_ = steps_ = 0;
    }

    // Overflows of fp16's scale are usual; a loss that is not finite is news even right after one.
    void note_skipped(double loss) {
        ++skipped_;
        last_skipped_ = at_.step;
        const bool is_usual = scales_loss() && std::isfinite(loss);
        if (!is_usual) skipped_level_ = Level::warn;
        const std::optional<double>& last = is_usual ? skipped_said_at_s_ : warned_at_s_;
        if (!last || now_s() - *last >= report_every_s) say_skipped();
    }

    void say_skipped() {
        skipped_said_ = skipped_;
        const Level level = std::exchange(skipped_level_, Level::info);
        skipped_said_at_s_ = now_s();
        if (level == Level::warn) warned_at_s_ = skipped_said_at_s_;
        once(level,
             "{} step(s) skipped so far, the last is step {}: loss or gradient is not finite{}",
             skipped_,
             last_skipped_,
             scales_loss() ? fmt::format("; the loss is scaled by {} now", at_.loss_scale.factor)
                           : "");
    }

    void report_epoch() {
        const double seconds = now_s() - epoch_since_s_;
        log_event(EpochEvent{.epoch = at_.epoch,
                             .samples = epoch_samples_,
                             .seconds = seconds,
                             .samples_per_s = static_cast<double>(epoch_samples_) / seconds});
        epoch_since_s_ = now_s();
        epoch_samples_ = 0;
        if (settings_.noise_scale_every == 0) return;
        const auto samples = noise_scale_.samples();
        once(Level::info,
             "gradient noise scale: {}",
             samples ? fmt::format(
                           "{:.3g} samples, compared with {} per step", *samples, settings_.batch)
                     : "not known yet, as noise hides the gradient");
    }

    // Of a large parameter every n-th value is counted, so that some 16,384 are: a layer takes
    // about a millisecond, however large it is.
    void report_weights() {
        constexpr std::int64_t most_values = 16'384;
        const std::int64_t every = settings_.histograms_every;
        if (!events_ || every <= 0 || at_.step % every != 0) return;
        const at::NoGradGuard no_grad;
        for (const auto& [name, parameter] : parts_.engine.replica->model().parameters()) {
            const at::Tensor all = parameter.detach().reshape({-1});
            const std::int64_t stride = std::max<std::int64_t>(1, all.numel() / most_values);
            const at::Tensor values =
                all.slice(0, 0, all.numel(), stride).to(at::kCPU, at::kFloat).contiguous();
            Histogram histogram;
            for (const float value : std::span(values.const_data_ptr<float>(), values.numel()))
                histogram.add(value);
            events_->add_histogram(at_.step, "weights/" + name, histogram);
        }
    }

    const LoopParts& parts_;
    const TrainSettings& settings_;
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
