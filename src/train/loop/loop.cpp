// SPDX-License-Identifier: Apache-2.0
// The order of actions after a step. All inputs but a clock, a signal and a user's request are the
// same on all ranks; those three go into the next step as wishes and return as what all agreed on:
//
//     wishes of this rank --> step k (summed with the gradients) --> agreed, the same everywhere
//                                                                      |
//     finite, else stop or roll back -> report -> leave without saving? -> data as they were?
//                                                   -> evaluate? -> save and stop? -> order a save?
//
// The results of evaluation are also the same on all ranks: each decides by itself whether it is
// the best so far, and whether the run stops early.
//
// What must never happen:
// - A rank decides alone. A signal reaches ranks at different moments, and clocks differ: who
//   stopped at once would leave the others in the next step. So a wish is acted on by all, at the
//   end of the step that carried it. Periods in seconds, the deadline and requests are rank 0's to
//   see.
// - A checkpoint or an evaluation of what was learned from files that had changed: before each, and
//   when an epoch ends, they are looked at.
// - A checkpoint of a step whose loss is not finite, unless that step was skipped: the last good
//   one must stay the newest.
// - A rollback depends on what else was saved, or when: it goes back to the checkpoint that was due
//   last by steps or epochs, and that one is kept as long as it may be needed.
// - A run that reached its last step ends as "interrupted" because a signal came with it.
// - The state file says less than the checkpoints: it is written after what it tells of is there.
// - A run ends, or goes back to a checkpoint, while a save is in flight: it waits for that first.
//
// Tested: e2e/resume_test.cpp, e2e/control_test.cpp (save and stop requests), e2e/tasks_test.cpp
// (steps that are skipped or rolled back), e2e/numbers_test.cpp (fp16's loss scale),
// e2e/data_test.cpp (files that change), plan/run_length_test.cpp, soak/kill_resume.

#include "loop/loop.hpp"

#include "lockstep/comm/agree.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/signals.hpp"
#include "lockstep/plan/losses.hpp"
#include "lockstep/plan/run_length.hpp"

#include "loop/reporter.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace lockstep {
namespace {

// Returns true if an action of `period` is due after step `step`. Rank 0 decides periods in
// seconds: see Saves::is_time().
bool is_due(const Period& period, std::int64_t step, const LoopParts& parts) {
    const std::int64_t epoch = parts.contract.length.steps_per_epoch;
    if (period.unit == Period::Unit::steps) return step % period.count == 0;
    if (period.unit == Period::Unit::epochs) return step % (period.count * epoch) == 0;
    return false;
}

constexpr int most_skipped_in_row = 100;

StepWishes wishes_of(const LoopParts& parts, const Saves& saves, const TimeLimit& limit) {
    const StopRequest request = stop_requested();
    const bool is_root = parts.start.ranks.is_root();
    StepWishes wishes{
        .requeue = request == StopRequest::save_and_requeue || (is_root && limit.is_near(now_s())),
        .interrupt = request == StopRequest::interrupt,
        .save = is_root && saves.is_time(),
        .votes = saves.votes()};
    if (!parts.run.directory) return wishes;
    const auto& asked = parts.run.directory->control_request();  // a user's, to rank 0
    if (!asked) return wishes;
    const Period& every = parts.start.settings.checkpoint_every;
    const bool saves_then = wishes.save || is_due(every, parts.course.progress.step + 1, parts);
    wishes.interrupt = wishes.interrupt || asked->action == ControlAction::stop ||
                       (asked->action == ControlAction::stop_after_checkpoint && saves_then);
    wishes.save =
        wishes.save || (asked->action == ControlAction::save && !saves.answers(asked->id));
    wishes.discard = asked->action == ControlAction::stop_now;
    return wishes;
}

// A step that fp16's scale skips is no sign of divergence.
bool must_roll_back(const StepOutcome& outcome, const TrainSettings& settings) {
    if (settings.on_nonfinite != NonFinite::rollback || !outcome.is_skipped) return false;
    return settings.precision != Precision::fp16 || !std::isfinite(outcome.loss);
}

// The outcome is the same on all ranks: they fail together, with one message.
void check_loss(const StepOutcome& outcome,
                const Batch& batch,
                const LoopParts& parts,
                Saves& saves) {
    const Communicator& ranks = parts.start.ranks;
    const TrainSettings& settings = parts.start.settings;
    JobProgress& at = parts.course.progress;
    at.skipped_in_row = outcome.is_skipped ? at.skipped_in_row + 1 : 0;
    const bool skips_on = at.skipped_in_row >= most_skipped_in_row;
    const bool is_scale_spent = outcome.is_skipped && is_spent(at.loss_scale);
    const bool rolls_back = must_roll_back(outcome, settings);
    const bool stops = !std::isfinite(outcome.loss) && settings.on_nonfinite == NonFinite::stop;
    if (!skips_on && !is_scale_spent && !rolls_back && !stops) return;
    saves.finish();
    if (skips_on) agree_on_failure(ranks, skipped_error(at.skipped_in_row, at.step));
    if (is_scale_spent) agree_on_failure(ranks, scale_error(at.loss_scale.factor, at.step));
    if (rolls_back) roll_back(parts);
    if (!stops) return;
    parts.course.data->check_files();  // the better reason, and then a sample that is to blame
    agree_on_failure(ranks,
                     sample_error(outcome.loss, at.step, batch, *parts.inputs.data, settings));
    agree_on_failure(ranks, loss_error(outcome.loss, at.step, settings));
}

void evaluate(const LoopParts& parts, Reporter& reporter) {
    if (!parts.engine.evaluator) return;
    reporter.flush();
    const PhaseScope scope(parts.run.clock, Phase::evaluate);
    Replica& replica = *parts.engine.replica;
    JobProgress& at = parts.course.progress;
    replica.swap_average();
    const Evaluation evaluation = parts.engine.evaluator->run(replica.model(), parts.run.clock);
    replica.swap_average();
    at.evaluated = {evaluation.metrics, evaluation.text};
    note_evaluation(at.best, parts.start.settings, evaluation.metrics, at.step);
    reporter.after_evaluation(evaluation);
    const std::string note = passed_over(parts.start.settings, evaluation.metrics);
    if (!note.empty()) once(Level::warn, "{}", note);
}

// After the first step, when all ranks that exchange anything have met.
void tell_of_network(const LoopParts& parts) {
    const Communicator& ranks = parts.start.ranks;
    if (!parts.engine.gpu || ranks.size() == 1) return;
    const NetworkSummary network = parts.engine.gpu->network(ranks);
    if (!ranks.is_root()) return;
    once(Level::info, "network: {}", network.text);
    for (const std::string& warning : network.warnings) once(Level::warn, "{}", warning);
    log_event("network", json_of_record(network));
}

void save_if_due(const LoopParts& parts, Saves& saves, const StepWishes& agreed) {
    const JobProgress& at = parts.course.progress;
    const auto kept = kept_steps(parts.start.settings, at.best);
    if (std::ranges::count(kept, at.step) > 0)
        saves.order(SaveReason::best);
    else if (agreed.save || saves.has_request())
        saves.order(SaveReason::request);
    else if (is_due(parts.start.settings.checkpoint_every, at.step, parts))
        saves.order(SaveReason::period);
}

bool is_at_end(const LoopParts& parts) {
    return parts.course.progress.step >= parts.contract.length.total_steps ||
           !reason_to_stop(parts.start.settings, parts.course.progress.best).empty();
}

TrainEnd complete(const LoopParts& parts) {
    const JobProgress& at = parts.course.progress;
    const std::string early = at.step < parts.contract.length.total_steps
                                  ? reason_to_stop(parts.start.settings, at.best)
                                  : "";
    if (!early.empty()) once(Level::info, "stopped early after step {}: {}", at.step, early);
    write_state(parts,
                RunPhase::complete,
                early.empty() ? "all steps are done" : "stopped early: " + early,
                ExitCode::complete);
    return TrainEnd::complete;
}

// Returns the reason of an interruption. Only rank 0 knows a user's request, and rank 0 writes it
// down.
std::string interruption(const LoopParts& parts) {
    if (!parts.run.directory || !parts.run.directory->control_request()) return "interrupted";
    return "stopped by request of " + parts.run.directory->control_request()->by;
}

TrainEnd stop(const LoopParts& parts,
              const StepWishes& agreed,
              const TimeLimit& limit,
              Saves& saves) {
    const char* why =
        limit.is_near(now_s()) ? "stopped before its deadline" : "stopped by a signal";
    saves.now();
    const bool requeue = !agreed.interrupt;
    write_state(parts,
                RunPhase::checkpointed,
                requeue ? why : interruption(parts),
                requeue ? ExitCode::saved_please_requeue : ExitCode::interrupted);
    once(Level::info,
         "stopped after step {}; the same command goes on from there",
         parts.course.progress.step);
    return requeue ? TrainEnd::saved_for_requeue : TrainEnd::interrupted;
}

// Without another checkpoint: the run goes on from the last one.
TrainEnd leave(const LoopParts& parts, Saves& saves) {
    saves.finish();
    const LastSave& last = saves.last();
    const std::int64_t step = std::exchange(parts.course.progress.step, last.step);
    parts.course.progress.epoch = last.epoch;
    write_state(parts, RunPhase::checkpointed, interruption(parts), ExitCode::interrupted);
    once(Level::info,
         "stopped after step {}; the same command goes on from step {}",
         step,
         last.step);
    return TrainEnd::interrupted;
}

}  // namespace

TrainEnd run_loop(const LoopParts& parts) {
    Reporter reporter(parts);
    write_state(parts, RunPhase::running, "training", ExitCode::complete);
    const TrainSettings& settings = parts.start.settings;
    const RunLength& length = parts.contract.length;
    JobProgress& at = parts.course.progress;
    TimeLimit limit(settings.deadline, unix_time_s(), now_s());
    Saves saves(parts, limit);
    bool is_first = true;
    while (!is_at_end(parts)) {
        const double begin_s = now_s();
        limit.begin_turn(begin_s);
        const Batch& batch = [&]() -> const Batch& {
            const PhaseScope scope(parts.run.clock, Phase::data);
            return parts.course.feed->next();
        }();
        const double rate = learning_rate(peak_rate(settings), settings.schedule, at.step, length);
        const StepOutcome outcome = parts.engine.step->run(
            *parts.course.feed, at.step, rate, wishes_of(parts, saves, limit));
        if (parts.course.ledger) parts.course.ledger->add(batch);
        ++at.step;
        at.position = batch.next;
        at.epoch = static_cast<std::int64_t>(batch.next.epoch);
        saves.after_step(outcome.agreed.votes, now_s() - begin_s);
        check_loss(outcome, batch, parts, saves);
        reporter.after_step(outcome, batch.samples_in_step, rate);
        if (std::exchange(is_first, false)) tell_of_network(parts);

        const bool is_last = at.step == length.total_steps;
        if (outcome.agreed.discard && !is_last) {
            reporter.finish();
            return leave(parts, saves);
        }
        const bool evaluates = is_last || is_due(settings.evaluate_every, at.step, parts);
        if (evaluates || at.position.consumed == 0) parts.course.data->check_files();
        if (evaluates) evaluate(parts, reporter);
        const bool at_end = is_at_end(parts);
        if (outcome.agreed.requeue || outcome.agreed.interrupt) {
            reporter.finish();
            if (!at_end) return stop(parts, outcome.agreed, limit, saves);
        }
        if (at_end)
            saves.now();
        else
            save_if_due(parts, saves, outcome.agreed);
    }
    reporter.finish();
    return complete(parts);
}

}  // namespace lockstep
