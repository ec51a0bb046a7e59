// SPDX-License-Identifier: Apache-2.0
// Who sits where: one row for each rank, as text for people and as JSON to be gathered.
#pragma once

#include "lockstep/cluster/node_facts.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// One rank's place.
struct RankRow {
    int rank = 0;
    std::string host;
    std::string host_id;  ///< NodeFacts::host_id(); tells nodes apart
    int local_rank = 0;
    std::int64_t pid = 0;
    std::vector<int> cpus;
    std::vector<int> numa_nodes;
    int threads = 1;
    std::string gpu = "-";
    std::string instruction_set;
    std::uint64_t memory_bytes = 0;  ///< what this rank's node or control group has
    bool memory_is_limited = false;  ///< by a control group
    bool operator==(const RankRow&) const = default;
};

/// The row of this process.
RankRow make_rank_row(const NodeFacts& node, int rank, int local_rank, int threads);

/// JSON on one line, and back. Errors: E222 naming `origin`.
std::string serialize(const RankRow& row);
RankRow deserialize_rank_row(std::string_view text, const std::string& origin = "rank row");

/// An aligned table with a header, one line a rank, every line ended.
std::string rank_table(std::span<const RankRow> rows);

/// How many CPUs a rank can count on, and which of them it may give to a helper thread.
struct CpuShare {
    int cpus = 0;             ///< its own, divided by the ranks of its node that may use them too
    std::optional<int> last;  ///< the last of them, if nobody else may use it
    bool operator==(const CpuShare&) const = default;
};
CpuShare cpu_share(std::span<const RankRow> rows, int rank);

/// What is wrong with this placement, each with its remedy; empty when all is well: ranks that
/// share a core, more threads than cores, different instruction sets, little memory for a rank.
std::vector<std::string> placement_warnings(std::span<const RankRow> rows);

}  // namespace lockstep
