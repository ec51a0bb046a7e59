// SPDX-License-Identifier: Apache-2.0
// Estimates the memory and disk of a training before it is submitted.
#pragma once

#include "lockstep/cluster/job_request.hpp"
#include "lockstep/plan/settings.hpp"

#include <cstdint>
#include <string>

namespace lockstep {

/// The estimate, in bytes.
struct JobEstimate {
    std::uint64_t parameters = 0;  ///< 0: unknown
    std::uint64_t node_memory_bytes = 0;
    std::uint64_t checkpoint_bytes = 0;  ///< size of one checkpoint
    std::uint64_t disk_bytes = 0;        ///< largest size at a time
    std::uint64_t data_bytes = 0;        ///< decoded; 0: unknown
};

/// Estimates a job. `parameters`: 0 for built-in models, whose number follows from the data's
/// shape. The data set is settings.data, if this host can see it.
JobEstimate estimate_job(const TrainSettings& settings,
                         const JobPart& part,
                         std::uint64_t parameters);

/// Returns lines for --dry-run, as comments of a script.
std::string estimate_text(const JobEstimate& estimate, const TrainSettings& settings);

}  // namespace lockstep
