// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/train.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"

#include "job.hpp"
#include "job_checkpoint.hpp"
#include "loop.hpp"

#include <exception>

#include <torch/version.h>

namespace lockstep {

namespace {

// Leaves "failed" in state.json if the call ends by an exception.
class FailureNote {
  public:
    explicit FailureNote(const Job& job) : job_(job), before_(std::uncaught_exceptions()) {}
    ~FailureNote() {
        if (std::uncaught_exceptions() == before_ || !job_.run.directory) return;
        try {
            job_.run.directory->write_state({.phase = RunPhase::failed,
                                             .step = job_.progress.step,
                                             .epoch = job_.progress.epoch,
                                             .reason = "an error, see the logs",
                                             .exit = static_cast<int>(ExitCode::bug)});
        } catch (const Error&) {
            // The run was taken over or its disk is gone: the first error is the one to show.
        }
    }
    FailureNote(const FailureNote&) = delete;
    FailureNote& operator=(const FailureNote&) = delete;

  private:
    const Job& job_;
    int before_;
};

}  // namespace

TrainResult train_model(const TrainSettings& settings, const Communicator& ranks) {
    Job job(settings, ranks);
    const FailureNote note(job);
    if (job.progress.step >= job.total_steps)
        once(
            Level::info, "the run is complete: {} of {} steps", job.progress.step, job.total_steps);
    TrainResult result;
    result.end = run_loop(job);
    result.step = job.progress.step;
    result.test_accuracy = job.progress.last_accuracy;
    result.parameter_hash = parameter_hash(*job.model, job.exchange->values());
    return result;
}

std::string torch_version_text() {
    return TORCH_VERSION;
}

}  // namespace lockstep
