// SPDX-License-Identifier: Apache-2.0
#include "loop.hpp"

#include "lockstep/comm/agree.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/signals.hpp"

#include "job_checkpoint.hpp"
#include "reporter.hpp"

#include <cmath>

namespace lockstep {
namespace {

// Whether something that happens every `period` happens after the step just done. Periods in
// seconds are rank 0's to judge: see save_is_due().
bool is_due(const Period& period, const JobProgress& at, std::int64_t steps_per_epoch) {
    if (period.unit == Period::Unit::steps) return at.step % period.count == 0;
    if (period.unit == Period::Unit::epochs) return at.step % (period.count * steps_per_epoch) == 0;
    return false;
}

StepWishes wishes_of(const Job& job, double last_save_s) {
    const StopRequest request = stop_requested();
    const Period& period = job.settings.checkpoint_every;
    const bool clock_says_save = job.ranks.is_root() && period.unit == Period::Unit::seconds &&
                                 now_s() - last_save_s >= static_cast<double>(period.count);
    return {.requeue = request == StopRequest::save_and_requeue,
            .interrupt = request == StopRequest::interrupt,
            .save = clock_says_save};
}

// The loss is the same on all ranks: they fail together, with one message.
void check_loss(const StepOutcome& outcome, const Job& job) {
    if (std::isfinite(outcome.loss)) return;
    agree_on_failure(
        job.ranks,
        Error("E701",
              fmt::format("the loss is {} at step {}", outcome.loss, job.progress.step),
              "the weights have diverged, or a sample is not finite",
              "lower --lr, use --warmup-steps, or look at the data; the last checkpoint is good"));
}

void advance(JobProgress& progress, const Batch& batch) {
    ++progress.step;
    progress.position = batch.next;
    progress.epoch = static_cast<std::int64_t>(batch.next.epoch);
}

void evaluate(Job& job, Reporter& reporter) {
    if (!job.evaluator) return;
    reporter.flush();
    const PhaseScope scope(job.clock, Phase::evaluate);
    const Evaluation evaluation = job.evaluator->run(*job.model);
    job.progress.last_accuracy = evaluation.accuracy();
    reporter.after_evaluation(evaluation);
}

void write_state(Job& job, RunPhase phase, const std::string& reason, ExitCode exit) {
    if (job.run.directory)
        job.run.directory->write_state({.phase = phase,
                                        .step = job.progress.step,
                                        .epoch = job.progress.epoch,
                                        .reason = reason,
                                        .exit = static_cast<int>(exit)});
}

void save(Job& job) {
    save_job(job);
    write_state(job, RunPhase::running, "checkpoint written", ExitCode::complete);
}

TrainEnd stop(Job& job, const StepWishes& agreed) {
    save_job(job);
    const bool requeue = !agreed.interrupt;
    write_state(job,
                RunPhase::checkpointed,
                requeue ? "stopped by a signal" : "interrupted",
                requeue ? ExitCode::saved_please_requeue : ExitCode::interrupted);
    once(Level::info,
         "stopped after step {}; the same command goes on from there",
         job.progress.step);
    return requeue ? TrainEnd::saved_for_requeue : TrainEnd::interrupted;
}

}  // namespace

TrainEnd run_loop(Job& job) {
    Reporter reporter(job);
    write_state(job, RunPhase::running, "training", ExitCode::complete);
    double last_save_s = now_s();
    while (job.progress.step < job.total_steps) {
        const Batch batch = [&] {
            const PhaseScope scope(job.clock, Phase::data);
            return job.stream->next();
        }();
        const double rate = learning_rate(
            job.settings.optimizer, job.settings.schedule, job.progress.step, job.total_steps);
        const StepOutcome outcome =
            job.step->run(batch, job.progress.step, rate, wishes_of(job, last_save_s));
        if (job.ledger) job.ledger->add(batch);
        advance(job.progress, batch);
        check_loss(outcome, job);
        reporter.after_step(outcome, batch.samples_in_step, rate);

        const bool at_end = job.progress.step == job.total_steps;
        if (at_end || is_due(job.settings.evaluate_every, job.progress, job.steps_per_epoch))
            evaluate(job, reporter);
        if (outcome.agreed.requeue || outcome.agreed.interrupt) {
            reporter.finish();
            if (!at_end) return stop(job, outcome.agreed);
        }
        if (at_end || outcome.agreed.save ||
            is_due(job.settings.checkpoint_every, job.progress, job.steps_per_epoch)) {
            save(job);
            last_save_s = now_s();
        }
    }
    reporter.finish();
    write_state(job, RunPhase::complete, "all steps are done", ExitCode::complete);
    return TrainEnd::complete;
}

}  // namespace lockstep
