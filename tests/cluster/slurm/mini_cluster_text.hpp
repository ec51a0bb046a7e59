// SPDX-License-Identifier: Apache-2.0
// What SLURM 22.05.8 said on tests/cluster's two nodes: `scontrol show partition --oneliner`, of
// all partitions but the first no more than what they differ in; `sinfo -h -o node_group_format`.
#pragma once

#include "lockstep/cluster/job_request.hpp"
#include "lockstep/core/split.hpp"

namespace lockstep::test {

/// Of "NAME=VALUE NAME=VALUE".
inline SbatchOptions options_of(const std::string& line) {
    SbatchOptions options;
    for (const std::string& word : split(line, ' ')) {
        const std::size_t at = word.find('=');
        if (!word.empty()) options.push_back({word.substr(0, at), word.substr(at + 1)});
    }
    return options;
}

inline const std::string mini_partitions =
    "PartitionName=debug AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL "
    "Default=YES QoS=N/A DefaultTime=00:05:00 DisableRootJobs=NO ExclusiveUser=NO "
    "GraceTime=0 Hidden=NO MaxNodes=UNLIMITED MaxTime=00:10:00 MinNodes=0 LLN=NO "
    "MaxCPUsPerNode=UNLIMITED Nodes=node[1-2] PriorityJobFactor=1 PriorityTier=10 "
    "RootOnly=NO ReqResv=NO OverSubscribe=NO OverTimeLimit=NONE PreemptMode=OFF State=UP "
    "TotalCPUs=16 TotalNodes=2 SelectTypeParameters=NONE JobDefaults=(null) "
    "DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED "
    "TRES=cpu=16,mem=16000M,node=2,billing=16\n"
    "PartitionName=gpu Default=NO MaxTime=1-00:00:00 State=UP TotalNodes=2\n"
    "PartitionName=short Default=NO MaxTime=00:01:00 State=UP TotalNodes=2\n"
    "PartitionName=preempt Default=NO MaxTime=1-00:00:00 State=UP TotalNodes=2\n";

inline const std::string mini_nodes =
    "debug|idle|2|8|8000|gpu:h100:4|2:4:1|(null)|node[1-2]\n"
    "gpu|idle|2|8|8000|gpu:h100:4|2:4:1|(null)|node[1-2]\n"
    "short|idle|2|8|8000|gpu:h100:4|2:4:1|(null)|node[1-2]\n"
    "preempt|idle|2|8|8000|gpu:h100:4|2:4:1|(null)|node[1-2]\n";

/// The mini cluster, and `cpu`: eight smaller nodes without GPUs, two of them down; a job gets at
/// most seven.
inline SlurmFacts mini_facts() {
    SlurmFacts facts;
    facts.partitions = parse_partitions(mini_partitions);
    facts.groups = parse_node_groups(mini_nodes +
                                     "cpu|idle|6|4|4000|(null)|1:4:1|big,avx512|cpu[01-06]\n"
                                     "cpu|down*|2|4|4000|(null)|1:4:1|big|cpu[07,08]\n");
    facts.partitions.push_back(
        {.name = "cpu", .state = "UP", .total_nodes = 8, .most_nodes = 7, .most_seconds = 3600});
    return facts;
}

}  // namespace lockstep::test
