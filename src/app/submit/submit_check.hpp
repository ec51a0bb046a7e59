// SPDX-License-Identifier: Apache-2.0
// What the ranks of a job would find and refuse, as far as it can be seen from where it is
// submitted.
#pragma once

#include "lockstep/cluster/job_request.hpp"
#include "lockstep/plan/settings.hpp"

#include "submit/submit_options.hpp"

namespace lockstep {

/// `settings`: what train will be told. What other nodes may have, and this one has not, is no
/// error. Errors: E201 data; E404, E407 and those of folders for the run; E528 memory below the
/// estimate; E548 GPUs; E640 more ranks than virtual ranks.
void check_ranks_will_run(const SubmitOptions& options,
                          const JobRequest& request,
                          const TrainSettings& settings);

}  // namespace lockstep
