// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/train.hpp"

#include "lockstep/core/log.hpp"

#include "job.hpp"
#include "job_checkpoint.hpp"
#include "loop.hpp"

#include <torch/version.h>

namespace lockstep {

TrainResult train_model(const TrainSettings& settings, const Communicator& ranks) {
    Job job(settings, ranks);
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
