// SPDX-License-Identifier: Apache-2.0
#include "sharing.hpp"

#include "lockstep/cluster/cpu_list.hpp"
#include "lockstep/cluster/early_binding.hpp"
#include "lockstep/cluster/placement.hpp"
#include "lockstep/core/error.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

namespace lockstep {
namespace {

/// The OS's name for the host, or where there is none the plan's.
const std::string& host_of(const RankSeat& seat) {
    return seat.host_id.empty() ? seat.host : seat.host_id;
}

void check_gpus(std::span<const RankSeat> seats) {
    std::map<std::pair<std::string, std::string>, int> owner;
    for (const auto& seat : seats) {
        const auto& name = seat.gpu_uuid.empty() ? seat.gpu : seat.gpu_uuid;
        if (name.empty()) continue;
        const auto [found, is_new] = owner.emplace(std::pair(host_of(seat), name), seat.rank);
        check(is_new, [&] {
            return Error("E608",
                         fmt::format("ranks {} and {} are on one GPU of {}: {} ({})",
                                     found->second,
                                     seat.rank,
                                     seat.host,
                                     seat.gpu,
                                     name),
                         "each rank computes on a GPU of its own, and NCCL refuses two on one",
                         "let every rank see all GPUs of its node (srun --gpus-per-node, not "
                         "--gpus-per-task; unset CUDA_VISIBLE_DEVICES), and start no more ranks "
                         "on a node than it has GPUs");
        });
    }
}

void check_cores(std::span<const RankSeat> seats) {
    std::map<std::pair<std::string, int>, const RankSeat*> owner;
    for (const auto& seat : seats) {
        for (const int cpu : seat.cpus) {
            const auto [found, is_new] = owner.emplace(std::pair(host_of(seat), cpu), &seat);
            check(is_new, [&] {
                return shared_core(*found->second, seat, cpu, std::max(1, seat.threads));
            });
        }
    }
}

}  // namespace

Error shared_core(const RankSeat& first, const RankSeat& second, int cpu, int each) {
    const std::string variable = openmp_binding(Environment());
    return Error("E609",
                 fmt::format("ranks {} and {} share core {} of {} (cores {} and {})",
                             first.rank,
                             second.rank,
                             cpu,
                             second.host,
                             cpu_list_text(first.cpus),
                             cpu_list_text(second.cpus)),
                 "each runs at a fraction of its speed, and all others wait for them",
                 variable.empty()
                     ? fmt::format("mpirun --bind-to core --map-by slot:PE={0}, or srun "
                                   "--cpus-per-task={0} --cpu-bind=cores; --bind-to none lets "
                                   "lockstep bind the ranks",
                                   each)
                     : fmt::format("unset {}, by which OpenMP put the ranks there", variable));
}

void check_no_sharing(std::span<const RankSeat> seats, const PlacementRules& rules) {
    if (rules.gpus == SharingRule::refuse) check_gpus(seats);
    if (rules.cores == SharingRule::refuse) check_cores(seats);
}

void check_witnesses(std::span<const NodeWitness> witnesses) {
    std::map<std::string, int> node_of_host, ranks_of_host;
    std::map<int, std::string> host_of_node;
    for (const auto& seen : witnesses) {
        const int expected = ranks_of_host[seen.host_id]++;
        const auto node = node_of_host.emplace(seen.host_id, seen.mpi_node).first->second;
        const auto& host = host_of_node.emplace(seen.mpi_node, seen.host_id).first->second;
        const bool agrees = node == seen.mpi_node && host == seen.host_id &&
                            expected == seen.mpi_local_rank &&
                            seen.launcher_local_rank.value_or(expected) == expected;
        check(agrees, [&] {
            return Error(
                "E646",
                fmt::format("rank {}: the system says {} and local rank {}, MPI says the node of "
                            "rank {} and local rank {}, the launcher says local rank {}",
                            seen.rank,
                            seen.host_id,
                            expected,
                            seen.mpi_node,
                            seen.mpi_local_rank,
                            seen.launcher_local_rank ? std::to_string(*seen.launcher_local_rank)
                                                     : "nothing"),
                "ranks would take each other's cores and GPUs",
                "start from a clean shell (unset ${!OMPI_COMM_WORLD_*} ${!SLURM_*}); give each "
                "container its host's name (--uts=host) or a name of its own");
        });
    }
}

}  // namespace lockstep
