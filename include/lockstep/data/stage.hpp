// SPDX-License-Identifier: Apache-2.0
/// @file
/// Copies a data set to every node's own disk, reading the shared file system only once.
#pragma once

#include "lockstep/data/team.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace lockstep {

/// The processes of a job by node. A column consists of one process of each node: those with the
/// same rank within their node.
struct StageTeam {
    Team all;             ///< every process
    Team node;            ///< processes of this node
    int node_number = 0;  ///< number of this node, below `nodes`
    int nodes = 1;        ///< number of nodes of the job
    int columns = 1;      ///< number of processes of each node that take part; the others wait
    /// Collective over this process's column: returns the `bytes` of its member on node `owner`.
    /// Not needed on one node.
    std::function<std::string(std::string bytes, int owner)> broadcast;
};

/// The check of an existing copy.
enum class StageTrust {
    sizes,   ///< digest and sizes suffice: blocks are checked when they are read
    hashes,  ///< every byte is read and hashed
};

/// Source, target and settings of staging.
struct StageOptions {
    std::filesystem::path source;          ///< a data set that all processes see
    std::filesystem::path target;          ///< the copy: a folder of each node's own
    StageTrust trust = StageTrust::sizes;  ///< check of an existing copy
    std::uint64_t piece_bytes = 4u << 20;  ///< read and sent at once
    /// Shards get their names in rounds of at least so many bytes: an interruption loses at most
    /// one round.
    std::uint64_t round_bytes = std::uint64_t{4} << 30;
    StageTeam team;  ///< the processes that copy
};

/// The progress of the job's copying.
struct StageProgress {
    std::uint64_t done = 0;   ///< bytes
    std::uint64_t total = 0;  ///< bytes that some node lacks
};

/// Called from time to time, on each process. See stage_dataset() for exceptions thrown from it.
using StageReport = std::function<void(const StageProgress&)>;

/// The result of staging; the sums are the job's unless stated otherwise.
struct StageResult {
    std::string digest;               ///< the data set's
    std::uint64_t dataset_bytes = 0;  ///< size of all shards
    std::uint64_t read_bytes = 0;     ///< by this process from the source
    std::uint64_t sent_bytes = 0;     ///< total of bytes that some node lacked
    std::size_t reused_files = 0;     ///< number of shards that this node had already
};

/// The file that marks a folder as a staged copy.
inline constexpr const char* staged_marker = "staged.json";

/// Collective. Copies the data set `source` to `target` on every node. Complete shards of a node
/// stay. Shards that any node lacks are cut into pieces: each node reads 1/nodes of them and sends
/// these to the others. Every file is compared with the manifest's hash before it gets its name; a
/// new copy gets its own at the end. The file `staged.json` of the copy names its source. An
/// existing copy is used if its digest is that of `source`, and repaired. If `report` throws E242,
/// on any process, complete shards stay for the next call; after other errors nothing is left of a
/// new copy. Errors: E407 (the target is no staged copy), E243 (a copy of something else), E403,
/// E404, E213 (a shard arrives damaged), those of reading and writing, and of a source that is no
/// data set; the same on all processes.
StageResult stage_dataset(const StageOptions& options, const StageReport& report = {});

/// Removes a staged copy on this node. Errors: E243 if `target` is not one.
void unstage_dataset(const std::filesystem::path& target);

}  // namespace lockstep
