// SPDX-License-Identifier: Apache-2.0
/// @file
/// The placement of a planned job's ranks, from SLURM's data about its nodes.
#pragma once

#include "lockstep/cluster/job_request.hpp"
#include "lockstep/cluster/placement.hpp"

#include <string>

namespace lockstep {

/// Returns a node of `group` as far as SLURM knows it, with the cores and GPUs that `part` asks
/// for. Sockets are numbered one after the other and each is a NUMA node; siblings are numbered as
/// Linux does; GPUs (gpu0, gpu1, ...) are spread evenly over the sockets. Caches, PCI addresses and
/// network ports are unknown.
NodeTopology planned_node(const NodeGroup& group, const JobPart& part);

/// Returns the ranks of all parts, on the first kind of nodes that holds each. Hosts are named
/// after their partition: "gpu:0", "gpu:1". `threads`: compute threads of each rank; 0: one per
/// core. Errors: those of plan_job(), if the nodes have too few cores or GPUs for the ranks.
Placement plan_job_map(const JobRequest& request, const SlurmFacts& facts, int threads);

/// Returns the plan for --dry-run, as comments of a script; if there is none, the reason.
std::string job_map_text(const JobRequest& request, const SlurmFacts& facts, int threads);

}  // namespace lockstep
