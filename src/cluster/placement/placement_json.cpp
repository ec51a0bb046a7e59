// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/placement.hpp"

#include "topology/facts_json.hpp"

#include <fmt/format.h>

namespace lockstep {

void describe(Record& record, LaunchedRank& facts) {
    record.sparse("rank", facts.rank, -1);
    record.sparse("local_rank", facts.local_rank, -1);
    cpu_list(record, "cpus", facts.cpus);
    record.sparse("gpus", facts.gpus);
    cpu_list(record, "offered", facts.offered);
    record.sparse("binds_itself", facts.binds_itself);
}

void describe(Record& record, RankSeat& facts) {
    record.sparse("rank", facts.rank, -1);
    record.sparse("host", facts.host);
    record.sparse("host_id", facts.host_id);
    record.sparse("local_rank", facts.local_rank, -1);
    cpu_list(record, "cpus", facts.cpus);
    record.sparse("comm_cpu", facts.comm_cpu);
    record.sparse("threads", facts.threads, 0);
    cpu_list(record, "numa_nodes", facts.numa_nodes);
    record.sparse("gpu", facts.gpu);
    record.sparse("gpu_uuid", facts.gpu_uuid);
    record.sparse("gpu_model", facts.gpu_model);
    record.sparse("nic", facts.nic);
    record.sparse("nic_path", facts.nic_path);
    record.sparse("is_bound", facts.is_bound);
}

void describe(Record& record, NodeWitness& facts) {
    record.sparse("rank", facts.rank, -1);
    record.sparse("host_id", facts.host_id);
    record.sparse("mpi_node", facts.mpi_node, -1);
    record.sparse("mpi_local_rank", facts.mpi_local_rank, -1);
    record.sparse("launcher_local_rank", facts.launcher_local_rank);
}

void describe(Record& record, Placement& facts) {
    record.sparse("names_hosts", facts.names_hosts, true);
    record.sparse("seats", facts.seats);
    record.sparse("warnings", facts.warnings);
}

Placement deserialize_placement(std::string_view text, const std::string& origin) {
    auto placement = deserialize<Placement>(text, origin);
    for (std::size_t i = 0; i < placement.seats.size(); ++i)
        check(placement.seats[i].rank == static_cast<int>(i), [&] {
            return Error(
                "E222",
                fmt::format("'{}': seat {} is of rank {}", origin, i, placement.seats[i].rank),
                "a plan has one seat for each rank, in order",
                "write it again with 'lockstep map --format json'");
        });
    return placement;
}

}  // namespace lockstep
