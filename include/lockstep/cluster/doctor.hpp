// SPDX-License-Identifier: Apache-2.0
/// @file
/// Facts of each rank about itself, its node and its launch; and checks of them, pure functions
/// that find a broken job before it starts.
#pragma once

#include "lockstep/cluster/topology.hpp"
#include "lockstep/core/environment.hpp"

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace lockstep {

/// The plan of the run. Zero, false and "" mean unknown, and are not judged.
struct DoctorPlan {
    int threads = 1;                 ///< threads of this rank
    bool uses_gpus = false;          ///< GPU checks apply only then
    bool expects_rdma = false;       ///< the job was given nodes with InfiniBand or RoCE
    std::uint64_t shared_bytes = 0;  ///< bytes of /dev/shm on one node
    std::uint64_t memory_bytes = 0;  ///< bytes of memory of one rank
    double duration_s = 0;
    std::string run_folder;
    bool operator==(const DoctorPlan&) const = default;
};

/// A missing requirement of training on GPUs.
struct MissingPart {
    std::string what, why, fix;
    bool operator==(const MissingPart&) const = default;
};

/// The programs and libraries of this process.
struct ProgramFacts {
    std::string version;                     ///< version of Lockstep
    std::string mpi_version;                 ///< MPI's own text
    int thread_level = 3;                    ///< MPI's, 0 (single) to 3 (multiple)
    std::vector<std::string> mpi_libraries;  ///< files mapped as libmpi
    std::vector<std::string> ancestors;      ///< programs that started this one, nearest first
    std::string nccl_version;                ///< "2.28.9", "" if none is loaded
    int pmix_version = 0;                    ///< as known_faults() takes it; 0: no PMIx is loaded
    int slurm_version = 0;                   ///< set for rank 0 of a job of SLURM
    std::optional<int> cuda_driver, cuda_runtime;  ///< in CUDA's numbers: 13000 is 13.0
    std::string cuda_fault;  ///< the reason why libcuda does not start, "" if it does
    std::vector<MissingPart> missing_for_gpus;  ///< without the driver; set for a node's first rank
    std::vector<std::string> launcher_messages;  ///< PMIx errors found in the launcher's output
    bool operator==(const ProgramFacts&) const = default;
};

/// A folder as this rank's node sees it.
struct FolderFacts {
    std::string path;
    bool exists = false;
    bool is_file = false;      ///< the folder, or a part of its path, is no folder
    bool is_writable = false;  ///< if it does not exist: it can be created
    std::string file_system;   ///< "ext4", "nfs", "tmpfs"; "" unknown
    bool holds_run = false;    ///< a run that began has written its record there
    std::uint64_t inode = 0;   ///< the same on all nodes that share the folder; if it does not
                               ///< exist: that of the nearest folder above it that does
    std::optional<std::uint64_t> free_bytes, total_bytes, free_inodes;
    bool operator==(const FolderFacts&) const = default;
};

/// Facts from the system's files, without topology.
struct SystemFacts {
    std::optional<std::uint64_t> frequency_khz, max_frequency_khz;  ///< first allowed CPU
    std::string frequency_driver;                                   ///< "intel_pstate"
    std::uint64_t throttled_moved = 0;            ///< throttled periods during the observation
    std::vector<std::string> stale_shared_files;  ///< files in /dev/shm of processes that are gone
    bool removes_ipc = false;                     ///< RemoveIPC=yes is written in logind.conf
    int overcommit = 0;                           ///< vm.overcommit_memory
    std::vector<std::string> host_addresses;  ///< addresses of the host's own name in /etc/hosts
    std::vector<std::string> nccl_files;      ///< existing configuration files of NCCL
    std::optional<bool>
        redirects_pci;  ///< ACS on a switch above a GPU or port; nothing: could not be read
    std::map<std::string, std::uint64_t> port_errors;   ///< "mlx5_0:1 symbol_error", so far
    std::map<std::string, std::uint64_t> errors_moved;  ///< increases while the job was watched
    std::optional<std::uint64_t> ras_port_owner;        ///< user id that listens on NCCL's RAS port
    std::uint64_t user = 0;                             ///< this process's user id
    bool operator==(const SystemFacts&) const = default;
};

/// An address of another node that did not answer.
struct UnreachedAddress {
    std::string host, address, reason;
    bool operator==(const UnreachedAddress&) const = default;
};

/// Results of this rank's attempts to reach others.
struct NetworkProbe {
    std::optional<double> clock_offset_s;  ///< this node's clock minus rank 0's
    int tried = 0;                         ///< number of addresses of other nodes that were tried
    std::vector<UnreachedAddress> unreached;
    std::vector<std::string>
        reached;  ///< hosts with one address that answered and another that did not
    std::vector<std::string> working;  ///< networks in which all tried addresses answered
    bool operator==(const NetworkProbe&) const = default;
};

/// Inexact sums of one size and type.
struct WrongSum {
    std::string type;
    std::uint64_t count = 0, wrong = 0;
    bool operator==(const WrongSum&) const = default;
};

/// Speed from this rank's node to another, in bytes per second.
struct PairSpeed {
    int to_rank = 0;
    double bytes_per_s = 0;
    bool operator==(const PairSpeed&) const = default;
};

/// A link is slow if its speed is below this share of the median.
constexpr double slow_link_share = 0.7;

/// Half of 10 Gbit/s in bytes per second: a slower link is reported to rank 0 even if none is
/// faster.
constexpr double doubtful_link = 625e6;

/// Results of the collective self-test; nothing in the fast subset.
struct SelfTestFacts {
    std::vector<WrongSum> wrong_sums;
    double median_link = 0;  ///< bytes per second between nodes; 0: fewer than three nodes
    std::vector<PairSpeed> slow_pairs;  ///< the slowest of this rank's slow or doubtful links
    /// Times of one sum of `reduced_bytes` over all ranks: measured, and of its memory accesses.
    std::optional<double> measured_s, memory_s;
    std::uint64_t reduced_bytes = 0;
    std::string state_hash;        ///< hash of a computation that must agree on all ranks
    std::uint64_t not_finite = 0;  ///< number of its values that are NaN or infinite
    std::vector<double> step_s;    ///< processor times of equal pieces of work
    bool operator==(const SelfTestFacts&) const = default;
};

/// Use of this rank's CPUs by all processes during a short computation of its own.
struct LoadFacts {
    double watched_s = 0;   ///< length of the observation
    double computed_s = 0;  ///< part of it in which the rank had a CPU
    double busy_s = 0;      ///< CPU time of all processes on the CPUs that the rank may use
    double stolen_s = 0;    ///< part of that taken by the host of this virtual machine
    bool operator==(const LoadFacts&) const = default;
};

/// All facts of one rank.
struct DoctorFacts {
    int rank = 0, size = 1;              ///< as MPI reports
    int local_rank = 0, local_size = 1;  ///< as MPI reports: ranks that share memory
    DoctorPlan plan;
    std::map<std::string, std::string> environment;  ///< only variables that checks read
    ProgramFacts program;
    NodeTopology node;
    SystemFacts system;
    FolderFacts shared_memory;     ///< /dev/shm
    FolderFacts temporary_folder;  ///< TMPDIR
    FolderFacts run_folder;        ///< folder of the plan
    NetworkProbe network;
    std::optional<LoadFacts> load;
    std::optional<SelfTestFacts> self_test;
    std::string gpu;   ///< PCI address of this rank's GPU, "" if none was selected
    double now_s = 0;  ///< Unix time
    bool operator==(const DoctorFacts&) const = default;
};

/// The rank that reads facts, and where it reads them.
struct FactSource {
    std::filesystem::path root = "/";  ///< a test puts a copy of /proc, /sys, /etc there
    Environment environment = {};
    DoctorPlan plan = {};
};

/// Reads all facts that need neither other ranks nor MPI. Missing facts stay empty.
DoctorFacts read_doctor_facts(const FactSource& source, const NodeTopology& node);

/// Reads the error counters of all RDMA ports: "mlx5_0:1 symbol_error".
std::map<std::string, std::uint64_t> read_port_errors(const std::filesystem::path& root = "/");

/// CPU time since the node started, in seconds.
struct CpuTime {
    double busy_s = 0;    ///< time not idle, including `stolen_s`
    double stolen_s = 0;  ///< time taken by the host of this virtual machine
};

/// Returns the sum over all `cpus`, from /proc/stat.
CpuTime read_cpu_time(const std::vector<int>& cpus, const std::filesystem::path& root = "/");

/// Returns the lines of a launcher's output that report PMIx errors, each once, at most 20.
std::vector<std::string> pmix_errors_in(std::string_view text);

void describe(Record& record, DoctorFacts& facts);  ///< for serialize() and back

/// error: training would fail or be wrong, and does not start. warning: it would be slow or
/// fragile. info: shown only with --json.
enum class Severity { info, warning, error };
std::string_view severity_name(Severity severity);  ///< "info", "warning", "error"

/// A problem that a check found. Empty parts are taken from the check's own row.
struct Ailment {
    std::string what, why = {}, fix = {};
    std::optional<Severity> severity = {};
    std::vector<int> ranks = {};  ///< empty: all that the check examined
};

/// The result of a check; empty: no problem.
using Ailments = std::vector<Ailment>;

/// The ranks of one node, in order.
using RanksOfNode = std::vector<const DoctorFacts*>;

/// All ranks of the job, in order.
using JobRanks = std::span<const DoctorFacts>;

/// Examines one rank. A check examines one rank, one of its GPUs, the ranks of one node, or all
/// ranks.
using RankLook = Ailments (*)(const DoctorFacts&);

/// Examines one GPU that a rank sees; called for each one, if the rank trains on GPUs.
using GpuLook = Ailments (*)(const GpuFacts&);

/// Examines the ranks of one node; called once for each node.
using NodeLook = Ailments (*)(const RanksOfNode&);

/// Examines all ranks; called once.
using JobLook = Ailments (*)(JobRanks);

/// fast: part of the preflight, from facts that every rank reads by itself. slow: needs a probe.
enum class Pace { fast, slow };

/// One row of the table. `id` is also the anchor in docs/doctor.md.
struct DoctorCheck {
    std::string_view id, title;
    std::string_view why, fix;  ///< used unless the ailment has its own
    std::variant<RankLook, GpuLook, NodeLook, JobLook> look;
    Severity severity = Severity::warning;
    Pace pace = Pace::fast;
};

/// All checks, by family: D launch, C CPU, G GPU, F fabric, L limits and storage, T self-test.
std::span<const DoctorCheck> doctor_checks();

/// One problem, reported once for all ranks that have it.
struct DoctorFinding {
    std::string id;
    Severity severity = Severity::warning;
    std::string title, what, why, fix;
    std::vector<int> ranks;
    std::vector<std::string> hosts;  ///< hosts of those ranks, each once, by rank
};

/// Selection of checks. Names are ids ("G2") or families ("G"), in upper or lower case.
struct DoctorSelection {
    std::vector<std::string> only;  ///< empty: all
    std::vector<std::string> skip;
    Pace slowest = Pace::slow;
};

/// Returns the rows that `selection` keeps. Errors: E614 for a name that is no check.
std::vector<const DoctorCheck*> selected_checks(const DoctorSelection& selection);

/// Runs the checks and folds equal findings; errors first, then by the table's order. `ranks` are
/// in order of rank, at least one.
std::vector<DoctorFinding> run_checks(JobRanks ranks, const DoctorSelection& selection = {});

/// Returns true if one of them is an error: the job must not start.
bool has_errors(std::span<const DoctorFinding> findings);

/// Returns text for people: errors and warnings, each with why and fix; then one line with totals.
/// `checks`: number of checks that were run.
std::string findings_text(std::span<const DoctorFinding> findings, std::size_t checks);

/// Returns JSON for programs on one line: {"ranks", "checks", "errors", "warnings", "findings":
/// [...]}.
std::string findings_json(std::span<const DoctorFinding> findings,
                          std::size_t checks,
                          std::size_t ranks);

/// Returns one line about the network: the one that connects the nodes, the number of addresses
/// that answered, and the interfaces left out, with reasons. Returns nothing for one node.
std::string network_text(JobRanks ranks);

/// Returns the hosts whose own hardware or set-up causes an error or warning, sorted: the value for
/// `--exclude` of sbatch. A problem of all hosts belongs to the job, not to a host.
std::vector<std::string> hosts_to_exclude(std::span<const DoctorFinding> findings, JobRanks ranks);

}  // namespace lockstep
