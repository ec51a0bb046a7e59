// SPDX-License-Identifier: Apache-2.0
/// @file
/// The cores, GPU and network port of each rank of a node; plans of whole jobs, as tables, launch
/// lines and files; and how a rank that its launcher did not bind takes its cores and memory,
/// before MPI and OpenMP start.
#pragma once

#include "lockstep/cluster/launch_facts.hpp"
#include "lockstep/cluster/topology.hpp"
#include "lockstep/core/environment.hpp"

#include <filesystem>
#include <map>
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

/// A host and its number of ranks.
struct HostSlots {
    std::string host;
    int slots = 1;
    bool operator==(const HostSlots&) const = default;
};

/// Parses "r1:4,r2:2", as in mpirun's --host. A name alone is one slot; a repeated name adds slots.
/// Errors: E607.
std::vector<HostSlots> parse_hosts(std::string_view text);

/// The distribution of ranks over hosts; see lay_out().
enum class MapBy { slot, node };

/// The host of a rank, by the rule of mpirun and srun.
struct RankOnHost {
    int rank = 0;
    int host = 0;  ///< index into the hosts
    int local_rank = 0;
};

/// Distributes ranks over hosts. By slot: the first host is filled first (mpirun's default, srun
/// --distribution=block); by node: one rank to each in turn (--map-by node, cyclic). `ranks` 0: one
/// for each slot. Errors: E607 more ranks than slots.
std::vector<RankOnHost> lay_out(std::span<const HostSlots> hosts, int ranks, MapBy by);

/// Makes a plan for hosts that all are like `node`; without `node`, it has only names and numbers.
/// GPUs have UUIDs only on the host that `node` describes. Errors: those of lay_out and
/// place_on_node.
Placement plan_job(std::span<const HostSlots> hosts,
                   std::span<const RankOnHost> ranks,
                   const NodeTopology* node,
                   const PlacementRules& rules);

/// Returns the differences between `reality` and `plan`, one line each. Cores differ if a rank may
/// run on one that the plan does not give it.
std::vector<std::string> differences(const Placement& plan, std::span<const RankSeat> reality);

/// Throws if there is a difference. Errors: E644 with the first one.
void check_against_plan(const Placement& plan, std::span<const RankSeat> reality);

/// Returns an aligned table with a head, and then the warnings; every line is ended.
std::string placement_table(const Placement& placement);

/// Returns mpirun's --rankfile, with CPUs as the kernel numbers them, for mpirun --mca
/// rmaps_rank_file_physical 1. Errors: E645 if the cores are unknown.
std::string rankfile_text(const Placement& placement);

/// Returns the command line that starts this plan; if mpirun cannot express it, a command with a
/// rankfile. srun: E645 if nodes differ. sbatch: a whole script.
std::string mpirun_text(const Placement& placement, const NodeTopology* node);

/// Does the same as mpirun_text(), for srun.
std::string srun_text(const Placement& placement);

/// Does the same as mpirun_text(), for sbatch.
std::string sbatch_text(const Placement& placement);

/// Returns the NUMA node of all `cpus`; nothing if they lie in several, if only one node has
/// memory, or if it is unknown.
std::optional<int> memory_node_of(const NodeTopology& node, const std::vector<int>& cpus);

/// Makes this thread and those it creates take new memory from `numa_node` while there is some
/// (set_mempolicy, MPOL_PREFERRED); kept over exec. Returns false if the system refuses, as
/// containers do, or if another policy was chosen before (numactl), which is kept.
bool prefer_memory_of(int numa_node);

/// Returns the NUMA node that this thread prefers (get_mempolicy); nothing if it prefers none.
std::optional<int> preferred_memory_node();

/// Variable with the cores ("4-7") of a rank that was bound here; "off" forbids binding.
inline constexpr const char* bound_variable = "LOCKSTEP_BOUND";

/// Returns the first variable set by which an OpenMP runtime binds the first thread of a program
/// when it is loaded; "" if none is.
std::string openmp_binding(const Environment& environment);

/// The binding of a rank before it has other threads.
struct EarlyBinding {
    std::vector<int> cpus;  ///< empty: no change
    std::map<std::string, std::string>
        variables;                   ///< variables for OpenMP, which reads them once, at start
    std::optional<int> memory_node;  ///< node to take memory from, if that matters
    std::string why_not;             ///< the setting that forbids binding
};

/// Returns true if early_binding() is needed. It is not if this rank was bound before, is alone on
/// its node, or if LOCKSTEP_BOUND forbids it. Reads no topology.
bool may_bind(const LaunchFacts& launch, const Environment& environment);

/// Returns the seat that place_on_node() gives this rank, by its launcher's data about ranks on
/// this node. Nothing is bound if the launcher bound, if there are more ranks than cores, or if
/// GOMP_CPU_AFFINITY, KMP_AFFINITY or LOCKSTEP_BOUND=off show that the user binds. OMP_PLACES,
/// OMP_PROC_BIND and OMP_NUM_THREADS are added unless the user set any of them. Memory comes from
/// the NUMA node of the cores, even if the launcher chose those. `node` must be as this process
/// sees it; `offered` is the result of launcher_cpus().
EarlyBinding early_binding(const NodeTopology& node,
                           const LaunchFacts& launch,
                           const Environment& environment,
                           const std::vector<int>& offered = {});

/// Restricts the calling thread to `cpus`. Returns false if the system refuses.
bool bind_thread(const std::vector<int>& cpus);

}  // namespace lockstep
