// SPDX-License-Identifier: Apache-2.0
/// @file
/// Measures how fast a data set is read, compared with the limit of the machine.
#pragma once

#include "lockstep/core/json.hpp"
#include "lockstep/data/batch_stream.hpp"
#include "lockstep/data/dataset_index.hpp"
#include "lockstep/data/row_source.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Ways of moving a data set's bytes. The first is the limit: nothing that reads files can beat it.
enum class IoWay {
    pread,   ///< 1 MiB requests into a ring of buffers; stored bytes
    blocks,  ///< the block reader: pread, hash, decode
    stream,  ///< shuffled batches from BatchStream; its caller does nothing else
};
std::string_view way_name(IoWay way);  ///< as `bench io` shows it

/// Whether the files' pages are in memory when a measurement begins.
enum class CacheState {
    hot,   ///< in the operating system's page cache
    cold,  ///< dropped from it before each pass
};
std::string_view state_name(CacheState state);  ///< as `bench io` shows it

/// What to measure, and how often.
struct IoPlan {
    std::vector<int> threads = {1, 2};  ///< of a way; I/O threads of the stream
    std::vector<CacheState> states = {CacheState::hot, CacheState::cold};  ///< of the page cache
    int rounds = 3;                           ///< ways take turns in each
    std::int64_t batch = 256;                 ///< samples
    std::uint64_t least_bytes = 256u << 20;   ///< decoded, of a hot pass: data sets are read again
    std::uint64_t limit_bytes = 4ull << 30;   ///< larger data sets: cold only, their first rows
    std::uint64_t ring_bytes = 64u << 20;     ///< buffers for data that are read, over all threads
    std::uint64_t memory_bytes = 512u << 20;  ///< of the stream
    /// Called before each pass with the number of passes done and to do.
    std::function<void(std::uint64_t done, std::uint64_t total, const std::string& what)> report;
};

/// One way with one number of threads: the best of all rounds.
struct IoRow {
    IoWay way = IoWay::pread;            ///< that was measured
    CacheState state = CacheState::hot;  ///< of the page cache
    int threads = 1;                     ///< of the way
    double best_s = 0;                   ///< of the fastest pass
    double median_s = 0;                 ///< over passes
    std::uint64_t bytes = 0;             ///< handed over, decoded, in a pass; 0 for pread
    std::uint64_t stored_bytes = 0;      ///< taken from files in a pass
    double first_s = 0;                  ///< stream: until the first batch
    StreamStats spent;                   ///< blocks, stream: of the best pass

    double bytes_per_s() const { return static_cast<double>(bytes) / best_s; }  ///< of decoded data

    /// Of bytes as they lie in the files.
    double stored_per_s() const { return static_cast<double>(stored_bytes) / best_s; }
};

/// What was measured, by row.
struct IoMeasurements {
    std::uint64_t samples = 0;           ///< of what was measured
    std::uint64_t bytes_per_sample = 0;  ///< decoded, all fields
    std::uint64_t decoded_bytes = 0;     ///< of what was measured
    std::uint64_t stored_bytes = 0;      ///< of what was measured
    std::string codec;                   ///< as --codec spells it
    std::vector<IoRow> rows;             ///< one for each way, state and number of threads
    std::vector<std::string> notes;      ///< what could not be measured, and why

    /// The row of that way, state and number of threads; nullptr if it was not measured.
    const IoRow* find(IoWay way, CacheState state, int threads) const;

    /// Rate of stored bytes over pread's with the same threads and state.
    std::optional<double> share_of_pread(const IoRow& row) const;
};

/// Measures all of `plan` in turns. Drops the shards' pages from the page cache for
/// CacheState::cold (only theirs). Errors: those of BlockReader and BatchStream; E102 for threads
/// < 1.
IoMeasurements measure_io(std::shared_ptr<const DatasetIndex> index, const IoPlan& plan);

/// One sentence for each state: what the stream supplies, its share of the limit, which stage
/// binds it, and what would help.
std::vector<std::string> io_verdicts(const IoMeasurements& measured);

/// The same for programs.
Json io_json(const IoMeasurements& measured);

/// Drops the shards' pages from the page cache, unwritten ones after writing them. Returns the
/// share of pages still there (of memory file systems: all).
double drop_page_cache(const DatasetIndex& index);

/// Made-up images that compress as real ones do.
struct ScratchShape {
    std::uint64_t samples = 0;                      ///< how many
    std::vector<std::int64_t> image = {3, 64, 64};  ///< C, H, W
    std::int64_t classes = 10;                      ///< of labels
};

/// `images` u8 and `labels` i64, the same for equal shapes: smooth shapes before a black ground
/// with noise in the lower bits. About 1.3 times smaller by deflate, 1.2 by lz4, like photographs
/// of that size. As many different images as make 32 MiB; then they repeat.
std::unique_ptr<RowSource> scratch_rows(const ScratchShape& shape);

}  // namespace lockstep
