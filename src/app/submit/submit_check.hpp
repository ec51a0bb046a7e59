// SPDX-License-Identifier: Apache-2.0
// Checks before submission that the ranks of a job will find what they need, as far as this host
// can see it.
#pragma once

#include "lockstep/cluster/job_request.hpp"
#include "lockstep/plan/settings.hpp"

#include "submit/submit_options.hpp"

namespace lockstep {

/// `settings`: those of train. Things that this node lacks but other nodes may have are no error.
/// Errors: E201 data; E404, E407 and those of folders for the run; E528 memory below the estimate;
/// E548 GPUs; E640 more ranks than virtual ranks.
void check_ranks_will_run(const SubmitOptions& options,
                          const JobRequest& request,
                          const TrainSettings& settings);

}  // namespace lockstep
