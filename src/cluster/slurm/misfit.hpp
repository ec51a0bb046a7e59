// SPDX-License-Identifier: Apache-2.0
// Why a partition could never start a part of a job.
#pragma once

#include "lockstep/cluster/job_request.hpp"

#include <string>
#include <vector>

namespace lockstep {

/// One reason, with the nearest request that would do.
struct Misfit {
    std::string code, what, why;
    std::string fix;  ///< "--nodes 8"; "" where only another partition helps
};

/// Every reason; none: it could start, sooner or later.
std::vector<Misfit> misfits(const JobPart& part,
                            const SlurmPartition& partition,
                            const SlurmFacts& facts,
                            const std::string& account);

}  // namespace lockstep
