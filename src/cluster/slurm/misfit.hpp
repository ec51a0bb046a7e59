// SPDX-License-Identifier: Apache-2.0
// Finds reasons why a partition could never start a part of a job.
#pragma once

#include "lockstep/cluster/job_request.hpp"

#include <string>
#include <vector>

namespace lockstep {

/// One reason, with the nearest possible request.
struct Misfit {
    std::string code, what, why;
    std::string fix;  ///< "--nodes 8"; "" if only another partition helps
};

/// Returns every reason; none: it could start, sooner or later.
std::vector<Misfit> misfits(const JobPart& part,
                            const SlurmPartition& partition,
                            const SlurmFacts& facts,
                            const JobRequest& request);

/// Returns the features that --constraint names.
std::vector<std::string> feature_names_in(const std::string& constraint);

/// Returns true if a node of `group` has enough CPUs, memory and GPUs for a node's share of `part`.
bool can_hold(const NodeGroup& group, const SlurmPartition& partition, const JobPart& part);

}  // namespace lockstep
