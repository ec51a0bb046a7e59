// SPDX-License-Identifier: Apache-2.0
/// @file
/// The placement of the ranks of a planned job, by SLURM's data about its nodes.
#pragma once

#include "lockstep/cluster/job_request.hpp"
#include "lockstep/cluster/placement.hpp"

#include <string>

namespace lockstep {

/// A node of `group` as far as SLURM knows it, with the cores and GPUs that `part` asks for:
/// sockets one after the other and each a NUMA node, siblings counted as Linux does, GPUs (gpu0,
/// gpu1, ...) spread evenly over the sockets. Caches, PCI addresses and network ports are not
/// known.
NodeTopology planned_node(const NodeGroup& group, const JobPart& part);

/// The ranks of all parts, on the first kind of nodes that holds each. Hosts are called by their
/// partition: "gpu:0", "gpu:1". `threads` that compute in each rank; 0: one a core. Errors: those
/// of plan_job(), where the nodes have too few cores or GPUs for the ranks.
Placement plan_job_map(const JobRequest& request, const SlurmFacts& facts, int threads);

/// The plan for --dry-run, as comments of a script; if there is none, the reason.
std::string job_map_text(const JobRequest& request, const SlurmFacts& facts, int threads);

}  // namespace lockstep
