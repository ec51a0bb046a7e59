// SPDX-License-Identifier: Apache-2.0
/// @file
/// Turns input files, or another data set, into a data set: shards, block index, statistics,
/// manifest.
#pragma once

#include "lockstep/data/dataset_index.hpp"
#include "lockstep/data/row_source.hpp"
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

/// What to do with what an unfinished pack left.
enum class Leftovers { resume, discard };

/// How a data set is to be laid out.
struct PackOptions {
    std::filesystem::path images;  ///< IDX, gzip or not
    std::filesystem::path labels;  ///< IDX, gzip or not
    std::filesystem::path output;  ///< the folder that becomes the data set
    std::string name;              ///< of the data set and its shards; "" = output's name
    std::string split = "train";   ///< "train", "test", as the manifest names it
    Codec codec = Codec::none;     ///< of blocks
    int level = 0;                 ///< of the codec; 0 = its usual one
    int shards = 0;                ///< 0 = about 512 MiB each
    std::uint32_t block_rows = 0;  ///< 0 = so that a block has at most 512 KiB
    std::optional<std::uint64_t> shuffle_seed = 0;  ///< rows are shuffled once; nullopt = kept
    std::int64_t classes = 0;                       ///< expected; 0 = largest label + 1
    std::vector<std::string> class_names;           ///< empty, or one per class
    Leftovers leftovers = Leftovers::resume;        ///< of an unfinished pack
    int threads = 1;                                ///< of each member; 0: one for each core
    Team team;                                      ///< shards are divided among its members
};

/// How far packing is: this member's part, scaled to all of it. Throwing from the callback cancels:
/// a later pack with the same options goes on after the last finished shard.
struct PackProgress {
    std::string_view stage;   ///< "scan", "write", "verify"
    std::uint64_t done = 0;   ///< samples, samples, bytes
    std::uint64_t total = 0;  ///< the same, in all
};

/// Called by the calling thread, now and then. Throwing from it interrupts the pack.
using PackReport = std::function<void(const PackProgress&)>;

/// What was written.
struct PackResult {
    std::filesystem::path path;      ///< its folder
    Manifest manifest;               ///< as it was written
    std::uint64_t raw_bytes = 0;     ///< of all fields, uncompressed
    std::uint64_t stored_bytes = 0;  ///< of all shards
    std::size_t resumed_shards = 0;  ///< finished by an earlier pack
};

/// A data set is never overwritten. Errors: E407 if `target` exists.
void check_is_free(const std::filesystem::path& target);

/// Collective. Packs the inputs named in `options`. The same inputs and options give the same bytes
/// on any machine, with any team and threads, interrupted or not. Everything is written to a folder
/// beside `output` (`.NAME.partial`), flushed, verified, and renamed. If packing ends before that,
/// however it ends, the folder keeps the finished shards, if there are any, and the next pack of
/// the same input with the same options goes on from there. Errors: E407 (output exists), E404
/// (another pack is writing it), E240 (leftovers of another pack), E241 (a member does not see the
/// folder), E401, E403, E405; E102, E106 (options); E209, E210, E214 (inputs); E213 (what was
/// written reads back differently).
PackResult pack_dataset(const PackOptions& options, const PackReport& report = {});

/// Collective. The same from any source; options.images and labels are ignored.
PackResult pack_dataset(const RowSource& source,
                        const PackOptions& options,
                        const PackReport& report = {});

/// Rows of a data set, as stored; each block is read once as long as rows are asked for in order.
/// Keeps `cached_blocks` blocks of each field. Names, statistics and the order of rows are those of
/// the data set; the fingerprint is made from its digest. Errors of read(): those of damage (E213
/// naming shard, field, block, offset and samples; E204; E210).
std::unique_ptr<RowSource> open_packed(std::shared_ptr<const DatasetIndex> index,
                                       std::size_t cached_blocks);

/// Collective. Packs `input` into options.output, streaming: memory is for some blocks per thread.
/// Samples and their order stay, unless options.shuffle_seed is given: then they are first
/// distributed to files next to the output, of which each fits into `memory_bytes`, so that nothing
/// is read at random. Blocks keep their rows, by which training's order goes, where
/// options.block_rows is 0. Everything else is as in pack_dataset(): parallel, resumable, verified,
/// atomic; options.images, labels, classes and class_names are ignored.
PackResult reshard_dataset(std::shared_ptr<const DatasetIndex> input,
                           const PackOptions& options,
                           std::uint64_t memory_bytes,
                           const PackReport& report = {});

}  // namespace lockstep
