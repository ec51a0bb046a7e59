// SPDX-License-Identifier: Apache-2.0
/// @file
/// Turns input files or a data set into a data set: shards, block index, statistics, manifest.
#pragma once

#include "lockstep/data/dataset_index.hpp"
#include "lockstep/data/sources.hpp"
#include "lockstep/data/team.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Treatment of the remains of an unfinished pack.
enum class Leftovers { resume, discard };

/// Inputs and layout of a new data set.
struct PackOptions {
    fs::path output;               ///< the folder that becomes the data set
    std::string name;              ///< name of the data set and its shards; "" = output's name
    std::string split = "train";   ///< name of the split in the manifest: "train", "test"
    Codec codec = Codec::none;     ///< codec of blocks
    int level = 0;                 ///< level of the codec; 0 = its default
    int shards = 0;                ///< 0 = about 512 MiB each
    std::uint32_t block_rows = 0;  ///< 0 = so that a block has at most 512 KiB
    std::optional<std::uint64_t> shuffle_seed = 0;  ///< rows are shuffled once; nullopt = kept
    std::int64_t classes = 0;                       ///< expected; 0 = largest label + 1
    std::vector<std::string> class_names{};         ///< empty, or one per class
    Leftovers leftovers = Leftovers::resume;        ///< remains of an unfinished pack
    int threads = 1;  ///< threads of each member; 0: one for each core
    Team team;        ///< shards are divided among its members
};

/// The progress of packing: this member's part, scaled to the whole. An exception thrown from the
/// callback cancels: a later pack with the same options resumes after the last finished shard.
struct PackProgress {
    std::string_view stage;   ///< "scan", "write", "verify"
    std::uint64_t done = 0;   ///< samples, samples, bytes
    std::uint64_t total = 0;  ///< total in the same unit
};

/// Called from time to time by the calling thread. An exception thrown from it interrupts the pack.
using PackReport = std::function<void(const PackProgress&)>;

/// The result of a pack.
struct PackResult {
    fs::path path;                   ///< folder of the data set
    Manifest manifest;               ///< manifest as written
    std::uint64_t raw_bytes = 0;     ///< size of all fields, uncompressed
    std::uint64_t stored_bytes = 0;  ///< size of all shards
    std::size_t resumed_shards = 0;  ///< number of shards finished by an earlier pack
};

/// Checks that `target` is free, as a data set is never overwritten. Errors: E407 if it exists.
void check_is_free(const fs::path& target);

/// Collective. Packs the rows of `source`. The same source and options give the same bytes
/// on any machine, with any team and threads, interrupted or not. Everything is written to a folder
/// beside `output` (`.NAME.partial`), flushed, verified, and renamed. If packing ends before that,
/// however it ends, the folder keeps the finished shards, if there are any, and the next pack of
/// the same input with the same options goes on from there. Errors: E407 (output exists), E404
/// (another pack is writing it), E240 (leftovers of another pack), E241 (a member does not see the
/// folder), E401, E403, E405; E102, E106 (options); E209, E210, E214 (inputs); E213 (what was
/// written reads back differently).
PackResult pack_dataset(const RowSource& source,
                        const PackOptions& options,
                        const PackReport& report = {});

/// Collective. Packs `input` into options.output, streaming: memory is for some blocks per thread.
/// Samples and their order stay, unless options.shuffle_seed is given: then they are first
/// distributed to files next to the output, of which each fits into `memory_bytes`, so that nothing
/// is read at random. Blocks keep their rows, by which training's order goes, where
/// options.block_rows is 0. Everything else is as in pack_dataset(): parallel, resumable, verified,
/// atomic; options.classes and class_names are ignored.
PackResult reshard_dataset(std::shared_ptr<const DatasetIndex> input,
                           const PackOptions& options,
                           std::uint64_t memory_bytes,
                           const PackReport& report = {});

/// What to write, and where.
struct ExportOptions {
    fs::path output;                     ///< the folder that is made
    std::vector<std::uint64_t> samples;  ///< by global number, in this order; empty: all
};

/// Called with the samples done. Throwing from it cancels and leaves nothing behind.
using ExportReport = std::function<void(std::uint64_t done)>;

/// Writes FIELD.npy for each field, rows in stored order or as asked for, through a folder beside
/// `output` that is renamed when all is written and flushed. Every block's hash is checked. Memory
/// does not grow with the data set.
/// Errors: E407 (output exists), E102 (no such sample), E401, E403, E405; E213 and kin (reading).
void export_dataset(std::shared_ptr<const DatasetIndex> index,
                    const ExportOptions& options,
                    const ExportReport& report = {});

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
    fs::path source;                       ///< a data set that all processes see
    fs::path target;                       ///< the copy: a folder of each node's own
    StageTrust trust = StageTrust::sizes;  ///< of a copy that is there
    std::uint64_t piece_bytes = 4u << 20;  ///< read and sent at once
    /// Shards become whole together, at least so many bytes of them: what an interruption costs.
    std::uint64_t round_bytes = std::uint64_t{4} << 30;
    StageTeam team;  ///< who copies
};

/// Called now and then, on each process, with bytes of the job; `total` is what some node lacks.
/// See stage_dataset() for what throwing does.
using StageReport = std::function<void(std::uint64_t done, std::uint64_t total)>;

/// What staging did; the sums are the job's unless stated otherwise.
struct StageResult {
    std::uint64_t dataset_bytes = 0;  ///< of all shards
    std::uint64_t read_bytes = 0;     ///< by this process from the source
    std::uint64_t sent_bytes = 0;     ///< total: what some node lacked
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
void unstage_dataset(const fs::path& target);

/// Collective. Returns the fields at `places` of `index` with mean and deviation of all samples, as
/// packing finds them: the result depends neither on `team` nor on `threads`. Errors: those of
/// reading.
std::vector<Field> find_statistics(const std::shared_ptr<const DatasetIndex>& index,
                                   const std::vector<std::size_t>& places,
                                   const Team& team,
                                   int threads,
                                   const PackReport& report = {});

}  // namespace lockstep
