// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/train.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/foreign_end.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/signals.hpp"

#include "loop/job.hpp"
#include "loop/loop.hpp"
#include "model/known_errors.hpp"

#include <c10/util/Exception.h>

namespace lockstep {
namespace {

// Where LibTorch throws what has a name of ours.
void fail(Job& job, const c10::Error& thrown) {
    try {
        throw_if_known(thrown);
    } catch (const Error& error) {
        job.note_failure(error);
        throw;
    }
    job.note_failure(as_error(thrown));
}

}  // namespace

TrainResult train_model(const TrainSettings& settings, const Communicator& ranks) {
    // A request during set-up is met after the first step.
    const SignalGuard signals(SignalGuard::SecondRequest::ends);
    Job job(settings, ranks);
    const ForeignEnd only_ours([&](const Error& error) { job.note_failure(error); });
    try {
        const LoopParts parts = job.prepare();
        parts.recorder.mark_running();
        if (parts.progress.step >= parts.length.total_steps)
            once(Level::info,
                 "the run is complete: {} of {} steps",
                 parts.progress.step,
                 parts.length.total_steps);
        TrainResult result;
        result.end = run_loop(parts);
        result.step = parts.progress.step;
        result.test = parts.progress.evaluated;
        result.parameter_hash = parts.replica.hash();
        result.summary = job.sum_up();
        parts.recorder.mark_finished();
        return result;
    } catch (const c10::Error& thrown) {
        fail(job, thrown);
        throw;
    } catch (const Error& error) {
        job.note_failure(error);
        throw;
    } catch (const std::exception& other) {
        job.note_failure(as_error(other));
        throw;
    }
}

}  // namespace lockstep
