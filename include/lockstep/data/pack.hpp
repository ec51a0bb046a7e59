// SPDX-License-Identifier: Apache-2.0
/// @file
/// Turns input files or a data set into a data set: shards, block index, statistics, manifest.
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

/// Treatment of the remains of an unfinished pack.
enum class Leftovers { resume, discard };

/// Inputs and layout of a new data set.
struct PackOptions {
    std::filesystem::path images;  ///< IDX, gzip or not
    std::filesystem::path labels;  ///< IDX, gzip or not
    std::filesystem::path output;  ///< the folder that becomes the data set
    std::string name;              ///< name of the data set and its shards; "" = output's name
    std::string split = "train";   ///< name of the split in the manifest: "train", "test"
    Codec codec = Codec::none;     ///< codec of blocks
    int level = 0;                 ///< level of the codec; 0 = its default
    int shards = 0;                ///< 0 = about 512 MiB each
    std::uint32_t block_rows = 0;  ///< 0 = so that a block has at most 512 KiB
    std::optional<std::uint64_t> shuffle_seed = 0;  ///< rows are shuffled once; nullopt = kept
    std::int64_t classes = 0;                       ///< expected; 0 = largest label + 1
    std::vector<std::string> class_names;           ///< empty, or one per class
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
    std::filesystem::path path;      ///< folder of the data set
    Manifest manifest;               ///< manifest as written
    std::uint64_t raw_bytes = 0;     ///< size of all fields, uncompressed
    std::uint64_t stored_bytes = 0;  ///< size of all shards
    std::size_t resumed_shards = 0;  ///< number of shards finished by an earlier pack
};

/// Checks that `target` is free, as a data set is never overwritten. Errors: E407 if it exists.
void check_is_free(const std::filesystem::path& target);

/// Collective. Packs the inputs named in `options`. The same inputs and options give the same bytes
/// on any machine, with any team and threads, interrupted or not. Everything is written to a folder
/// beside `output` (`.NAME.partial`), flushed, verified, and renamed. If packing ends earlier for
/// any reason, the folder keeps the finished shards, if there are any. The next pack of the same
/// input with the same options resumes from them. Errors: E407 (output exists), E404 (another pack
/// is writing it), E240 (remains of another pack), E241 (a member does not see the folder), E401,
/// E403, E405; E102, E106 (options); E209, E210, E214 (inputs); E213 (the written data differ when
/// read back).
PackResult pack_dataset(const PackOptions& options, const PackReport& report = {});

/// Collective. Packs rows of any source in the same way; options.images and labels are ignored.
PackResult pack_dataset(const RowSource& source,
                        const PackOptions& options,
                        const PackReport& report = {});

/// Opens the rows of a data set, as stored; each block is read once if rows are requested in order.
/// Keeps `cached_blocks` blocks of each field. Names, statistics and the order of rows are those of
/// the data set; the fingerprint is made from its digest. Errors of read(): those of damage (E213
/// naming shard, field, block, offset and samples; E204; E210).
std::unique_ptr<RowSource> open_packed(std::shared_ptr<const DatasetIndex> index,
                                       std::size_t cached_blocks);

/// Collective. Packs `input` into options.output with memory for a few blocks per thread. Samples
/// and their order stay, unless options.shuffle_seed is given: then they are first distributed to
/// files next to the output, each of which fits into `memory_bytes`, so that no read is random. If
/// options.block_rows is 0, blocks keep their rows, on which training's order depends. Everything
/// else is as in pack_dataset(): parallel, resumable, verified, atomic; options.images, labels,
/// classes and class_names are ignored.
PackResult reshard_dataset(std::shared_ptr<const DatasetIndex> input,
                           const PackOptions& options,
                           std::uint64_t memory_bytes,
                           const PackReport& report = {});

}  // namespace lockstep
