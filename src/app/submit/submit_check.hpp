// SPDX-License-Identifier: Apache-2.0
// What the ranks of a job would find and refuse, and how much memory and disk it will need, as far
// as that can be seen from where it is submitted.
#pragma once

#include "lockstep/cluster/job_request.hpp"
#include "lockstep/plan/settings.hpp"

#include "submit/submit_plan.hpp"

#include <cstdint>
#include <string>

namespace lockstep {

/// `settings`: those of train. Things that this node lacks but other nodes may have are no error.
/// Errors: E201 data; E404, E407 and those of folders for the run; E528 memory below the estimate;
/// E548 GPUs; E640 more ranks than virtual ranks.
void check_ranks_will_run(const SubmitOptions& options,
                          const JobRequest& request,
                          const TrainSettings& settings);

/// What is estimated, in bytes.
struct JobEstimate {
    std::uint64_t parameters = 0;  ///< 0: not known
    std::uint64_t node_memory_bytes = 0;
    std::uint64_t copy_bytes = 0;  ///< of a node, for saves beside the steps; a job runs without
    std::uint64_t checkpoint_bytes = 0;  ///< of one
    std::uint64_t disk_bytes = 0;        ///< at most at a time
    std::uint64_t data_bytes = 0;        ///< decoded; 0: not known
};

/// `parameters`: 0 for built-in models, whose number is known from the data's shape. The data set
/// is settings.data, if it can be seen from here.
JobEstimate estimate_job(const TrainSettings& settings,
                         const JobPart& part,
                         std::uint64_t parameters);

/// Lines for --dry-run, as comments of a script.
std::string estimate_text(const JobEstimate& estimate, const TrainSettings& settings);

}  // namespace lockstep
