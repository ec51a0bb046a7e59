// SPDX-License-Identifier: Apache-2.0
// The fields of seats and plans, each named once, for facts_json.hpp.
#pragma once

#include "lockstep/cluster/placement.hpp"

#include "facts_json.hpp"

namespace lockstep {

template <class Walker, FactsOf<LaunchedRank> Facts>
void walk(Walker& on, Facts& facts) {
    on("rank", facts.rank, -1);
    on("local_rank", facts.local_rank, -1);
    on("cpus", facts.cpus);
    on("gpus", facts.gpus);
    on("offered", facts.offered);
    on("binds_itself", facts.binds_itself);
}

template <class Walker, FactsOf<RankSeat> Facts>
void walk(Walker& on, Facts& facts) {
    on("rank", facts.rank, -1);
    on("host", facts.host);
    on("host_id", facts.host_id);
    on("local_rank", facts.local_rank, -1);
    on("cpus", facts.cpus);
    on("comm_cpu", facts.comm_cpu);
    on("threads", facts.threads, 0);
    on("numa_nodes", facts.numa_nodes);
    on("gpu", facts.gpu);
    on("gpu_uuid", facts.gpu_uuid);
    on("gpu_model", facts.gpu_model);
    on("nic", facts.nic);
    on("nic_path", facts.nic_path);
    on("is_bound", facts.is_bound);
}

template <class Walker, FactsOf<NodeWitness> Facts>
void walk(Walker& on, Facts& facts) {
    on("rank", facts.rank, -1);
    on("host_id", facts.host_id);
    on("mpi_node", facts.mpi_node, -1);
    on("mpi_local_rank", facts.mpi_local_rank, -1);
    on("launcher_local_rank", facts.launcher_local_rank);
}

template <class Walker, FactsOf<Placement> Facts>
void walk(Walker& on, Facts& facts) {
    on("names_hosts", facts.names_hosts, true);
    on("seats", facts.seats);
    on("warnings", facts.warnings);
}

}  // namespace lockstep
