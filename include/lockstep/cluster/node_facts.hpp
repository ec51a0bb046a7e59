// SPDX-License-Identifier: Apache-2.0
/// @file
/// The operating system's data about this node and about this process on it; a row of it from each
/// rank, and what a job may use of its hosts.
#pragma once

#include "lockstep/core/environment.hpp"
#include "lockstep/core/instruction_set.hpp"
#include "lockstep/core/record.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// The limits of this process's control groups: the smallest of this group and those above.
struct ControlGroupFacts {
    int version = 0;                  ///< 0: none found
    std::vector<int> cpus;            ///< cpuset; empty: not reported
    std::vector<int> memory_nodes;    ///< cpuset; empty: not reported
    std::optional<double> cpu_quota;  ///< quota in CPUs; nothing: no quota
    std::optional<std::uint64_t> memory_limit_bytes;
    std::uint64_t throttled_periods = 0;
    bool operator==(const ControlGroupFacts&) const = default;
};

/// Facts of a node that one process reads quickly, from a few files of /proc and /sys. NodeTopology
/// adds all others.
struct NodeFacts {
    std::string host;               ///< host name
    std::string boot_id;            ///< differs between nodes of the same name, and between boots
    std::vector<int> allowed_cpus;  ///< CPUs that this process may use
    std::vector<int> allowed_memory_nodes;  ///< NUMA nodes for its memory
    std::string cpu_model;
    InstructionSet instruction_set = InstructionSet::basic;
    std::uint64_t memory_bytes = 0;  ///< memory of the whole node
    ControlGroupFacts control_group;
    bool operator==(const NodeFacts&) const = default;

    /// Returns a text that is equal exactly for processes of one booted node.
    std::string host_id() const { return boot_id + "/" + host; }

    /// Returns the control group's limit, if that is below the node's memory.
    std::optional<std::uint64_t> memory_limit_bytes() const;

    /// Returns the smaller of the node's memory and the limit.
    std::uint64_t usable_memory_bytes() const {
        return memory_limit_bytes().value_or(memory_bytes);
    }
};

/// Reads below `root`, where a test may put a copy of /proc and /sys. Missing facts stay empty,
/// because no file exists on every kernel.
NodeFacts read_node_facts(const std::filesystem::path& root = "/");

/// Returns {0,1,2,3,8} for "0-3,8"; sorted, each CPU once. Returns nothing if `text` is not such a
/// list.
std::optional<std::vector<int>> parse_cpu_list(std::string_view text);

/// Returns "0-3,8" for {0,1,2,3,8}; "-" for none.
std::string cpu_list_text(const std::vector<int>& cpus);

/// One rank's host, as the rank sees it.
struct RankRow {
    int rank = 0;
    std::string host;
    std::string host_id;  ///< NodeFacts::host_id(); distinguishes nodes
    std::vector<int> cpus;
    InstructionSet instruction_set = InstructionSet::basic;
    std::uint64_t memory_bytes = 0;  ///< memory of this rank's node or control group
    bool memory_is_limited = false;  ///< a control group limits the memory
    bool operator==(const RankRow&) const = default;
};

/// Returns the row of this process.
RankRow make_rank_row(const NodeFacts& node, int rank);

void describe(Record& record, RankRow& facts);  ///< for serialize() and back

/// Returns the number of ranks of the same node that may use some of the CPUs of `rank`, itself
/// included; 0 if it has none.
int ranks_sharing_cpus(std::span<const RankRow> rows, int rank);

/// The number of CPUs of a rank, and the CPU that it may give to a helper thread.
struct CpuShare {
    int cpus = 0;             ///< its CPUs, divided by the ranks of its node that may use them too
    std::optional<int> last;  ///< its last CPU, if no other process may use it
    bool operator==(const CpuShare&) const = default;
};

/// Returns the share of `rank`, by the rows of its node.
CpuShare cpu_share(std::span<const RankRow> rows, int rank);

/// Returns the problems of the hosts for these ranks, each with its remedy: different instruction
/// sets, as far as the computation uses them, up to `most`; little memory for a rank. Empty if
/// there are none.
std::vector<std::string> hardware_warnings(std::span<const RankRow> rows, InstructionSet most);

/// Returns the number of cores of `rank`. Cores that several ranks of a node may use are divided
/// among them, so that all ranks together have each core of their nodes once. It is at most the
/// rank's part of a quota.
double core_share(std::span<const RankRow> rows, int rank, const ControlGroupFacts& group);

/// The memory of a node that its ranks together may use.
struct UsableMemory {
    std::uint64_t bytes = 0;
    std::string set_by;  ///< "control group", "SLURM"; "node": no other limit
};

/// Returns the smallest of the memory of `node`, the limit of its control group, and the memory
/// that SLURM gave the job.
UsableMemory memory_limit(const NodeFacts& node, const Environment& environment);

}  // namespace lockstep
