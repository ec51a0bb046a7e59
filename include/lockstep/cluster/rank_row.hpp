// SPDX-License-Identifier: Apache-2.0
/// @file
/// What each rank's host has for it, gathered over all ranks, and what a job may use of it.
#pragma once

#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/record.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

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
