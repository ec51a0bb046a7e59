// SPDX-License-Identifier: Apache-2.0
/// @file
/// The cores, GPU and network port of each rank.
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

/// One rank of a node as its launcher started it.
struct LaunchedRank {
    int rank = 0, local_rank = 0;
    std::vector<int> cpus;                         ///< CPUs that it may run on
    std::optional<std::vector<std::string>> gpus;  ///< UUIDs or PCI addresses; nothing: sees all
    std::vector<int> offered;   ///< CPUs that the launcher itself may use; empty: unknown
    bool binds_itself = false;  ///< `cpus` are this rank's own choice, not the launcher's
    bool operator==(const LaunchedRank&) const = default;
};

/// The hardware threads of a core that a rank computes on.
enum class SiblingUse { first_thread, all_threads };

/// Permission for two ranks to share one GPU, or one core.
enum class SharingRule {
    refuse,
    unless_needed,  ///< refused, unless a node has fewer of them than ranks
    allow
};
/// The devices that ranks compute on. gpus: if a node has any.
enum class ComputeOn { gpus, cpus };

/// Reservation of a rank's last core for communication.
enum class CommCore { automatic, reserve, none };

/// The user's choices.
struct PlacementRules {
    SiblingUse siblings = SiblingUse::first_thread;
    SharingRule gpus = SharingRule::refuse, cores = SharingRule::refuse;
    CommCore comm_core =
        CommCore::automatic;  ///< automatic: if a rank has a GPU and at least 2 cores
    int threads = 0;          ///< compute threads per rank; 0: one per core
    ComputeOn compute_on = ComputeOn::gpus;  ///< cpus: ranks get no GPU, and need none
};

/// One rank's place.
struct RankSeat {
    int rank = 0;
    std::string host;
    std::string host_id;  ///< "" in a plan made without that host
    int local_rank = 0;
    std::vector<int> cpus;        ///< including the communication thread's
    std::optional<int> comm_cpu;  ///< the last of them, if it is reserved for communication
    int threads = 1;              ///< number of compute threads
    std::vector<int> numa_nodes;  ///< NUMA nodes of `cpus`
    std::string gpu;              ///< PCI address, "" for none
    std::string gpu_uuid;         ///< UUID of the GPU or its MIG instance; "" if unknown
    std::string gpu_model;
    std::string nic;        ///< "mlx5_0:1", "" for none
    std::string nic_path;   ///< path class from GPU (or cores) to the port
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

/// Returns the places of one node's ranks. It is a pure function with the same result on every
/// rank. GPUs are assigned by a minimum-cost matching (another's GPU 10000, another NUMA node 100,
/// path class to the best port 10 a step, then order of addresses). Cores that the launcher gave to
/// one rank alone are kept. A set given to several ranks, such as a whole node or socket, is split
/// evenly among them next to the GPUs, by caches, without crossing one if that can be avoided.
/// Errors: E608 fewer GPUs than ranks, E609 launcher's cores overlap, E643 fewer cores than ranks;
/// each names ranks, and the correct launch line.
Placement place_on_node(const NodeTopology& node,
                        std::span<const LaunchedRank> ranks,
                        const PlacementRules& rules);

/// Returns `planned` with the cores that its rank may use now, and whether its launcher chose them.
RankSeat seat_as_it_is(const NodeTopology& node, const LaunchedRank& rank, RankSeat planned);

/// Returns the CPUs that this process's mpirun (or its daemon on this node) may use, and can give
/// to ranks. Empty if the parent process is no such launcher.
std::vector<int> launcher_cpus(const std::filesystem::path& root = "/");

/// Returns one node as all its ranks together see it: the first one's view, with the GPUs that
/// control groups show to the others only.
NodeTopology merge_views(std::span<const NodeTopology> views);

/// Returns the GPUs of this node that CUDA_VISIBLE_DEVICES selects, in the form of
/// LaunchedRank::gpus; nothing if it is not set. Indices are taken by PCI address, which is correct
/// for CUDA_DEVICE_ORDER=PCI_BUS_ID and for GPUs of one model. Errors: E648 a word that names no
/// GPU, or indices if the order is unknown.
std::optional<std::vector<std::string>> visible_gpus(const NodeTopology& node,
                                                     const Environment& environment);

/// Makes the last check before a job starts. Errors: E608 if two seats of one host have the same
/// GPU, E609 if two that the launcher bound have a core in common; both ranks are named.
void check_no_sharing(std::span<const RankSeat> seats, const PlacementRules& rules);

/// Sources that say which ranks share a node.
struct NodeWitness {
    int rank = 0;
    std::string host_id;  ///< from the operating system
    int mpi_node = 0;     ///< lowest rank of those that MPI finds sharing memory
    int mpi_local_rank = 0;
    std::optional<int> launcher_local_rank;
    bool operator==(const NodeWitness&) const = default;
};

/// Compares the sources. Errors: E646 naming the first rank whose sources differ, with their
/// values.
void check_witnesses(std::span<const NodeWitness> witnesses);

void describe(Record& record, LaunchedRank& facts);  ///< for serialize() and back
void describe(Record& record, RankSeat& facts);      ///< for serialize() and back
void describe(Record& record, NodeWitness& facts);   ///< for serialize() and back
void describe(Record& record, Placement& facts);     ///< for serialize() and back

/// Reads the text of serialize(). Errors: E222 naming `origin`.
Placement deserialize_placement(std::string_view text, const std::string& origin = "plan");

}  // namespace lockstep
