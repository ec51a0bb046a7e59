// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/train.hpp"

#include "lockstep/comm/agree.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/signals.hpp"
#include "lockstep/observe/events.hpp"

#include "loop/job.hpp"
#include "loop/job_checkpoint.hpp"
#include "loop/loop.hpp"

namespace lockstep {

namespace {

// Who failed so: " (ranks 2-3 on node2 only)".
std::string failed_ranks(const Error& error) {
    const auto* agreed = dynamic_cast<const AgreedError*>(&error);
    return agreed == nullptr || agreed->ranks().empty() ? "" : " (" + agreed->ranks() + ")";
}

void note_failure(Job& job, const Error& error) {
    if (job.flight) job.flight->recorder().mark_failed(static_cast<int>(error.exit_code()));
    log_event(event_of(error));
    if (!job.run.directory) return;
    try {
        job.run.directory->write_state(
            {.phase = RunPhase::failed,
             .step = job.progress.step,
             .epoch = job.progress.epoch,
             .reason = error.code() + ": " + error.what() + failed_ranks(error),
             .exit = static_cast<int>(error.exit_code()),
             .steps_total = job.total_steps});
    } catch (const Error&) {
        // The run was taken over or its disk is gone: the first error is the one to show.
    }
}

}  // namespace

TrainResult train_model(const TrainSettings& settings, const Communicator& ranks) {
    const SignalGuard signals;  // a request during set-up is met after the first step
    Job job(settings, ranks);
    try {
        job.prepare();
        job.flight->recorder().mark_running();
        if (job.progress.step >= job.total_steps)
            once(Level::info,
                 "the run is complete: {} of {} steps",
                 job.progress.step,
                 job.total_steps);
        TrainResult result;
        result.end = run_loop(job);
        result.step = job.progress.step;
        result.test_accuracy = job.progress.last_accuracy;
        result.parameter_hash = job.replica->hash();
        job.flight->recorder().mark_finished();
        return result;
    } catch (const Error& error) {
        note_failure(job, error);
        throw;
    }
}

}  // namespace lockstep
