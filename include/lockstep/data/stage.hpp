// SPDX-License-Identifier: Apache-2.0
/// @file
/// A copy of a data set on every node's own disk, which reads the shared file system only once.
#pragma once

#include "lockstep/data/team.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace lockstep {

/// The processes of a job by node. Columns are made of one process of each node: those with the
/// same rank within their node.
struct StageTeam {
    Team all;             ///< every process
    Team node;            ///< those of this node
    int node_number = 0;  ///< of this node, below `nodes`
    int nodes = 1;        ///< of the job
    int columns = 1;      ///< how many processes of each node take part; the others wait
    /// Collective over this process's column: `bytes` of its member on node `owner`. Not needed on
    /// one node.
    std::function<std::string(std::string bytes, int owner)> broadcast;
};

/// How a copy that is there already is looked at.
enum class StageTrust {
    sizes,   ///< digest and sizes suffice: blocks are checked when they are read
    hashes,  ///< every byte is read
};

/// What is copied, to where, by whom.
struct StageOptions {
    std::filesystem::path source;          ///< a data set that all processes see
    std::filesystem::path target;          ///< the copy: a folder of each node's own
    StageTrust trust = StageTrust::sizes;  ///< of a copy that is there
    std::uint64_t piece_bytes = 4u << 20;  ///< read and sent at once
    /// Shards become whole together, at least so many bytes of them: what an interruption costs.
    std::uint64_t round_bytes = std::uint64_t{4} << 30;
    StageTeam team;  ///< who copies
};

/// How far the job's copying is.
struct StageProgress {
    std::uint64_t done = 0;   ///< bytes
    std::uint64_t total = 0;  ///< bytes of what some node lacks
};

/// Called now and then, on each process. See stage_dataset() for what throwing does.
using StageReport = std::function<void(const StageProgress&)>;

/// What staging did; the sums are the job's unless stated otherwise.
struct StageResult {
    std::string digest;               ///< the data set's
    std::uint64_t dataset_bytes = 0;  ///< of all shards
    std::uint64_t read_bytes = 0;     ///< by this process from the source
    std::uint64_t sent_bytes = 0;     ///< total: what some node lacked
    std::size_t reused_files = 0;     ///< shards that this node had already
};

/// The file that makes a folder a staged copy.
inline constexpr const char* staged_marker = "staged.json";

/// Collective. Copies the data set `source` to `target` on every node. Shards that a node has whole
/// stay; what any node lacks is cut into pieces, of which each node reads 1/nodes and sends them to
/// the others. Every file is compared with the manifest's hash before it gets its name; a new copy
/// gets its own at the end. The copy has a file `staged.json`, which says what it is a copy of.
/// A copy that exists is used if its digest is that of `source`, and repaired. If `report` throws
/// E242, on any process, shards that are whole stay for the next call; after other errors nothing
/// is left of a new copy.
/// Errors: E407 (the target is no staged copy), E243 (a copy of something else), E403, E404, E213
/// (a shard arrives damaged), those of reading and writing, and of a source that is no data set;
/// the same on all processes.
StageResult stage_dataset(const StageOptions& options, const StageReport& report = {});

/// Removes a staged copy on this node. Errors: E243 if `target` is not one.
void unstage_dataset(const std::filesystem::path& target);

}  // namespace lockstep
