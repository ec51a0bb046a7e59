// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which rank computes on which cores and GPU and talks through which network port.
#pragma once

#include "lockstep/cluster/topology.hpp"
#include "lockstep/core/environment.hpp"

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// One rank of a node as its launcher left it.
struct LaunchedRank {
    int rank = 0;
    int local_rank = 0;
    std::vector<int> cpus;                         ///< it may run on
    std::optional<std::vector<std::string>> gpus;  ///< UUIDs or PCI addresses; nothing: sees all
    std::vector<int> offered;   ///< what the launcher itself may use; empty: unknown
    bool binds_itself = false;  ///< `cpus` are not the launcher's choice, but this rank's own
    bool operator==(const LaunchedRank&) const = default;
};

/// Which hardware threads of a core a rank computes on.
enum class SiblingUse { first_thread, all_threads };

/// Whether two ranks may have one GPU, or one core.
enum class SharingRule {
    refuse,
    unless_needed,  ///< refuse, unless a node has fewer of them than ranks
    allow
};
/// What ranks compute on. gpus: if a node has any.
enum class ComputeOn { gpus, cpus };

/// Whether a rank keeps its last core for communication.
enum class CommCore { automatic, reserve, none };

/// What the user decides.
struct PlacementRules {
    SiblingUse siblings = SiblingUse::first_thread;
    SharingRule gpus = SharingRule::refuse;
    SharingRule cores = SharingRule::refuse;
    CommCore comm_core = CommCore::automatic;  ///< automatic: if a rank has a GPU and 2 cores
    int threads = 0;                           ///< compute threads a rank; 0: one a core
    ComputeOn compute_on = ComputeOn::gpus;    ///< cpus: ranks get no GPU, and need none
};

/// One rank's place.
struct RankSeat {
    int rank = 0;
    std::string host;
    std::string host_id;  ///< "" in a plan made without that host
    int local_rank = 0;
    std::vector<int> cpus;        ///< with the communication thread's
    std::optional<int> comm_cpu;  ///< the last of them, if it is reserved for communication
    int threads = 1;              ///< that compute
    std::vector<int> numa_nodes;  ///< of `cpus`
    std::string gpu;              ///< PCI address, "" for none
    std::string gpu_uuid;         ///< of the GPU or its MIG instance; "" if unknown
    std::string gpu_model;
    std::string nic;        ///< "mlx5_0:1", "" for none
    std::string nic_path;   ///< path class from GPU (or cores) to it
    bool is_bound = false;  ///< the launcher chose the cores, and they are kept
    bool operator==(const RankSeat&) const = default;
};

/// Seats by rank, and facts about them.
struct Placement {
    std::vector<RankSeat> seats;
    std::vector<std::string> warnings;  ///< each with its remedy
    bool names_hosts = true;            ///< false: made for nodes of unknown names
    bool operator==(const Placement&) const = default;
};

/// The places of one node's ranks: a pure function, the same on every rank. GPUs by a minimum-cost
/// matching (another's GPU 10000, another NUMA node 100, path class to the best port 10 a step,
/// then order of addresses). Cores that the launcher gave one rank alone are kept; a set that
/// several ranks have alike, such as a whole node or socket, is split evenly among them next to the
/// GPUs, by caches, without crossing one where that can be avoided, the same number for each rank.
/// Errors: E608 fewer GPUs than ranks, E609 launcher's cores overlap, E643 fewer cores than ranks;
/// each names ranks, and the launch line that would be right.
Placement place_on_node(const NodeTopology& node,
                        std::span<const LaunchedRank> ranks,
                        const PlacementRules& rules);

/// `planned` with the cores that its rank may use now, and whether its launcher chose them.
RankSeat seat_as_it_is(const NodeTopology& node, const LaunchedRank& rank, RankSeat planned);

/// CPUs that this process's mpirun (or its daemon on this node) may use: what it can give to
/// ranks. Empty if the process above is no such launcher.
std::vector<int> launcher_cpus(const std::filesystem::path& root = "/");

/// One node as all its ranks together see it: the first one's view, with the GPUs that control
/// groups show to the others only.
NodeTopology merge_views(std::span<const NodeTopology> views);

/// What CUDA_VISIBLE_DEVICES leaves of this node's GPUs, as LaunchedRank::gpus has them; nothing if
/// it is not set. Indices are CUDA's: by PCI address, which is true for
/// CUDA_DEVICE_ORDER=PCI_BUS_ID and for GPUs of one model. Errors: E648 a word that names no GPU,
/// or indices if order is unknown.
std::optional<std::vector<std::string>> visible_gpus(const NodeTopology& node,
                                                     const Environment& environment);

/// Errors: E608 if two seats of one host have the same GPU, E609 if two that the launcher
/// bound have a core in common; named are both ranks. The last check before a job starts.
void check_no_sharing(std::span<const RankSeat> seats, const PlacementRules& rules);

/// Sources that say which ranks share a node.
struct NodeWitness {
    int rank = 0;
    std::string host_id;  ///< the operating system's word
    int mpi_node = 0;     ///< lowest rank of those that MPI finds sharing memory
    int mpi_local_rank = 0;
    std::optional<int> launcher_local_rank;
    bool operator==(const NodeWitness&) const = default;
};

/// Errors: E646 naming the first rank whose witnesses differ, with all their words.
void check_witnesses(std::span<const NodeWitness> witnesses);

void describe(Record& record, LaunchedRank& facts);  ///< for serialize() and back
void describe(Record& record, RankSeat& facts);      ///< for serialize() and back
void describe(Record& record, NodeWitness& facts);   ///< for serialize() and back
void describe(Record& record, Placement& facts);     ///< for serialize() and back

/// What serialize() wrote. Errors: E222 naming `origin`.
Placement deserialize_placement(std::string_view text, const std::string& origin = "plan");

/// What OpenMP reads at start, for one rank: OMP_NUM_THREADS, OMP_PLACES, OMP_PROC_BIND.
struct OpenMpSettings {
    std::string threads, places, bind;
    bool operator==(const OpenMpSettings&) const = default;
};

/// For the threads and cores of `seat`.
OpenMpSettings openmp_settings(const RankSeat& seat);

}  // namespace lockstep
