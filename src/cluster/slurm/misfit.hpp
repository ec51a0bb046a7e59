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
                            const JobRequest& request);

/// The features that --constraint speaks of.
std::vector<std::string> feature_names_in(const std::string& constraint);

/// Whether nodes of `group` have what `constraint` asks of each. Where it asks for some of one kind
/// and some of another ("[a*2&b*1]"), or for combinations, SLURM has to decide: true.
bool has_features(const NodeGroup& group, const std::string& constraint);

/// Whether a node of `group` has CPUs, memory and GPUs enough for what `part` puts on one.
bool can_hold(const NodeGroup& group, const SlurmPartition& partition, const JobPart& part);

}  // namespace lockstep
