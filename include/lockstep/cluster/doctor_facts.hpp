// SPDX-License-Identifier: Apache-2.0
/// @file
/// Facts of one rank about itself, its node and its launch, for checks over all ranks.
#pragma once

#include "lockstep/cluster/topology.hpp"
#include "lockstep/core/environment.hpp"

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// What the run is going to do. Zero, false and "": not known, and not judged.
struct DoctorPlan {
    int threads = 1;                 ///< of this rank
    bool uses_gpus = false;          ///< GPU checks count only then
    bool expects_rdma = false;       ///< the job was given nodes with InfiniBand or RoCE
    std::uint64_t shared_bytes = 0;  ///< of /dev/shm, on one node
    std::uint64_t memory_bytes = 0;  ///< of one rank
    double duration_s = 0;
    std::string run_folder;
    bool operator==(const DoctorPlan&) const = default;
};

/// Something that training on GPUs needs and that is not here.
struct MissingPart {
    std::string what, why, fix;
    bool operator==(const MissingPart&) const = default;
};

/// How this process was started, and from what.
struct ProgramFacts {
    std::string version;                     ///< of Lockstep
    std::string mpi_version;                 ///< MPI's own text
    int thread_level = 3;                    ///< MPI's, 0 (single) to 3 (multiple)
    std::vector<std::string> mpi_libraries;  ///< files mapped as libmpi
    std::vector<std::string> ancestors;      ///< programs that started this one, nearest first
    std::string nccl_version;                ///< "2.28.9", "" if none is loaded
    std::optional<int> cuda_driver, cuda_runtime;  ///< as CUDA counts: 13000 is 13.0
    std::string cuda_fault;                        ///< why libcuda does not start, "" if it does
    std::vector<MissingPart> missing_for_gpus;     ///< but for the driver; of a node's first rank
    std::vector<std::string> launcher_messages;    ///< PMIx errors found in the launcher's output
    bool operator==(const ProgramFacts&) const = default;
};

/// A folder as this rank's node sees it.
struct FolderFacts {
    std::string path;
    bool exists = false;
    bool is_file = false;      ///< it, or what of its path is there, is no folder
    bool is_writable = false;  ///< if it is not there: it can be made
    std::string file_system;   ///< "ext4", "nfs", "tmpfs"; "" unknown
    std::uint64_t inode = 0;   ///< the same on all nodes where the folder is shared
    std::optional<std::uint64_t> free_bytes, total_bytes, free_inodes;
    bool operator==(const FolderFacts&) const = default;
};

/// Facts of the system's files other than topology.
struct SystemFacts {
    std::optional<std::uint64_t> frequency_khz, max_frequency_khz;  ///< of the first allowed CPU
    std::string frequency_driver;                                   ///< "intel_pstate"
    std::uint64_t throttled_moved = 0;            ///< periods throttled while this process looked
    std::vector<std::string> stale_shared_files;  ///< in /dev/shm, of processes that are gone
    bool removes_ipc = false;                     ///< RemoveIPC=yes is written in logind.conf
    int overcommit = 0;                           ///< vm.overcommit_memory
    std::vector<std::string> host_addresses;      ///< of the host's own name in /etc/hosts
    std::vector<std::string> nccl_files;          ///< configuration files of NCCL that are there
    std::optional<bool> redirects_pci;  ///< ACS on a switch above a GPU or port; nothing: unread
    std::map<std::string, std::uint64_t> port_errors;   ///< "mlx5_0:1 symbol_error", so far
    std::map<std::string, std::uint64_t> errors_moved;  ///< the same, while the job was watched
    std::optional<std::uint64_t> ras_port_owner;        ///< user id that listens on NCCL's RAS port
    std::uint64_t user = 0;                             ///< this process's user id
    bool operator==(const SystemFacts&) const = default;
};

/// An address of another node that did not answer.
struct UnreachedAddress {
    std::string host, address, reason;
    bool operator==(const UnreachedAddress&) const = default;
};

/// What this rank found when it talked to others.
struct NetworkProbe {
    std::optional<double> clock_offset_s;  ///< this node's clock minus rank 0's
    int tried = 0;                         ///< addresses of other nodes
    std::vector<UnreachedAddress> unreached;
    std::vector<std::string> reached;  ///< hosts of which one address answered and another did not
    std::vector<std::string> working;  ///< networks in which all that was tried answered
    bool operator==(const NetworkProbe&) const = default;
};

/// Sums of one size and type that were not exact.
struct WrongSum {
    std::string type;
    std::uint64_t count = 0, wrong = 0;
    bool operator==(const WrongSum&) const = default;
};

/// Bytes a second from this rank's node to another's.
struct PairSpeed {
    int to_rank = 0;
    double bytes_per_s = 0;
    bool operator==(const PairSpeed&) const = default;
};

/// A link that is slower than this share of the median one is slow.
constexpr double slow_link_share = 0.7;

/// Bytes a second, half of 10 Gbit/s: a slower link is reported to rank 0 even if no other is
/// faster.
constexpr double doubtful_link = 625e6;

/// What the collective self-test measured; nothing in the fast subset.
struct SelfTestFacts {
    std::vector<WrongSum> wrong_sums;
    double median_link = 0;             ///< bytes a second between nodes; 0: fewer than three nodes
    std::vector<PairSpeed> slow_pairs;  ///< the slowest of this rank's slow or doubtful links
    /// One sum of `reduced_bytes` over all ranks, and what memory alone would take for it.
    std::optional<double> measured_s, memory_s;
    std::uint64_t reduced_bytes = 0;
    std::string state_hash;        ///< of a computation that must agree on all ranks
    std::uint64_t not_finite = 0;  ///< numbers of it that are NaN or infinite
    std::vector<double> step_s;    ///< processor time of equal pieces of work
    bool operator==(const SelfTestFacts&) const = default;
};

/// What happened on this rank's CPUs while it computed by itself for a moment.
struct LoadFacts {
    double watched_s = 0;   ///< how long the moment was
    double computed_s = 0;  ///< for how long of it the rank had a CPU
    double busy_s = 0;      ///< CPU time of everybody on the CPUs that the rank may use
    double stolen_s = 0;    ///< of that, taken by the host of this virtual machine
    bool operator==(const LoadFacts&) const = default;
};

/// All of it for one rank.
struct DoctorFacts {
    int rank = 0, size = 1;              ///< as MPI says
    int local_rank = 0, local_size = 1;  ///< as MPI says: ranks that share memory
    DoctorPlan plan;
    std::map<std::string, std::string> environment;  ///< only variables that checks read
    ProgramFacts program;
    NodeTopology node;
    SystemFacts system;
    FolderFacts shared_memory;     ///< /dev/shm
    FolderFacts temporary_folder;  ///< TMPDIR
    FolderFacts run_folder;        ///< of the plan
    NetworkProbe network;
    std::optional<LoadFacts> load;
    std::optional<SelfTestFacts> self_test;
    std::string gpu;   ///< PCI address of the GPU this rank uses, "" if none was selected
    double now_s = 0;  ///< Unix time
    bool operator==(const DoctorFacts&) const = default;
};

/// The rank that asks, and the place to read from.
struct FactSource {
    std::filesystem::path root = "/";  ///< a test puts a copy of /proc, /sys, /etc there
    Environment environment = {};
    DoctorPlan plan = {};
};

/// Everything that needs neither other ranks nor MPI. What is missing stays empty.
DoctorFacts read_doctor_facts(const FactSource& source, const NodeTopology& node);

/// Error counters of all RDMA ports now, "mlx5_0:1 symbol_error".
std::map<std::string, std::uint64_t> read_port_errors(const std::filesystem::path& root = "/");

/// Seconds since the node started.
struct CpuTime {
    double busy_s = 0;    ///< not idle, `stolen_s` included
    double stolen_s = 0;  ///< taken by the host of this virtual machine
};

/// Of all `cpus` together, from /proc/stat.
CpuTime read_cpu_time(const std::vector<int>& cpus, const std::filesystem::path& root = "/");

/// Lines of a launcher's output that report PMIx errors, each once, at most 20.
std::vector<std::string> pmix_errors_in(std::string_view text);

void describe(Record& record, DoctorFacts& facts);  ///< for serialize() and back

}  // namespace lockstep
