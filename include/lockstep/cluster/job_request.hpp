// SPDX-License-Identifier: Apache-2.0
// What a job asks of SLURM, with types, and whether the cluster could ever give it.
#pragma once

#include "lockstep/cluster/job_script.hpp"
#include "lockstep/cluster/slurm_facts.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// One part of a job; only a heterogeneous one has more than one.
struct JobPart {
    std::vector<std::string> partitions;      ///< any of them will do; empty: the default one
    std::optional<std::int64_t> least_nodes;  ///< nothing: as many as the tasks need
    std::optional<std::int64_t> most_nodes;   ///< as `least_nodes` where one number is given
    std::optional<std::int64_t> tasks;        ///< of the whole part
    std::optional<std::int64_t> node_tasks;   ///< of each node
    std::int64_t task_cpus = 1;
    std::int64_t node_gpus = 0;
    std::string gpu_type;                 ///< "": any
    std::int64_t node_memory_mb = 0;      ///< 0: the partition's default, or all
    std::optional<std::int64_t> seconds;  ///< nothing: the partition's default

    std::int64_t node_count() const { return least_nodes.value_or(1); }
    std::int64_t ranks_per_node() const;
};

/// Options that are checked; all others go to SLURM as they are.
struct JobRequest {
    std::string job_name, account;
    std::optional<std::int64_t> last_task;  ///< the highest index of an array
    std::vector<std::string> awaited_jobs;  ///< of --dependency
    std::vector<JobPart> parts;
};

/// Reads the options of a script, each by its type. Errors: E532 for characters that a script
/// cannot carry, E526 for a time, E103 for numbers and the rest.
JobRequest read_request(const std::vector<SbatchOptions>& parts);

/// Refuses what SLURM would take and never start, with the nearest request that it could start.
/// Errors: E523 partition, E524 nodes, E525 time, E527 GPUs, E528 memory, E533 account, E534
/// dependency, E535 closed partition, E536 CPUs, E538 array. Returns what the user should know.
std::vector<std::string> check_request(const JobRequest& request, const SlurmFacts& facts);

}  // namespace lockstep
