// SPDX-License-Identifier: Apache-2.0
// How much memory and disk a training will need, before it is submitted.
#pragma once

#include "lockstep/cluster/job_request.hpp"
#include "lockstep/plan/settings.hpp"

#include <cstdint>
#include <string>

namespace lockstep {

/// What is estimated, in bytes.
struct JobEstimate {
    std::uint64_t parameters = 0;  ///< 0: not known
    std::uint64_t node_memory_bytes = 0;
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
