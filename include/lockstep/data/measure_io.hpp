// SPDX-License-Identifier: Apache-2.0
/// @file
/// Measures the speed of reading a data set, compared with the limit of the machine.
#pragma once

#include "lockstep/core/json.hpp"
#include "lockstep/data/batch_stream.hpp"
#include "lockstep/data/dataset_index.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Methods of reading a data set. The first is the limit: no method that reads files can be faster.
enum class IoWay {
    pread,   ///< 1 MiB requests into a ring of buffers; stored bytes
    blocks,  ///< the block reader: pread, hash, decode
    stream,  ///< shuffled batches from BatchStream; its caller does nothing else
};
std::string_view way_name(IoWay way);  ///< name in `bench io`

/// The state of the files' pages when a measurement begins.
enum class CacheState {
    hot,   ///< in the operating system's page cache
    cold,  ///< dropped from it before each pass
};
std::string_view state_name(CacheState state);  ///< name in `bench io`

/// The plan of a measurement.
struct IoPlan {
    std::vector<int> threads = {1, 2};  ///< threads of a method; I/O threads of the stream
    std::vector<CacheState> states = {CacheState::hot, CacheState::cold};  ///< of the cache
    int rounds = 3;            ///< methods take turns in each
    std::int64_t batch = 256;  ///< samples
    std::uint64_t least_bytes =
        256u << 20;  ///< decoded bytes of a hot pass: data sets are read again until then
    std::uint64_t limit_bytes = 4ull << 30;   ///< larger data sets: cold only, their first rows
    std::uint64_t ring_bytes = 64u << 20;     ///< buffers for data that are read, over all threads
    std::uint64_t memory_bytes = 512u << 20;  ///< memory of the stream
    /// Called before each pass with the numbers of finished and of all passes.
    std::function<void(std::uint64_t done, std::uint64_t total, const std::string& what)> report;
};

/// One method with one number of threads: the best of all rounds.
struct IoRow {
    IoWay way = IoWay::pread;            ///< the method measured
    CacheState state = CacheState::hot;  ///< state of the page cache
    int threads = 1;                     ///< threads of the method
    double best_s = 0;                   ///< time of the fastest pass
    double median_s = 0;                 ///< over passes
    std::uint64_t bytes = 0;             ///< decoded bytes delivered in a pass; 0 for pread
    std::uint64_t stored_bytes = 0;      ///< bytes read from files in a pass
    double first_s = 0;                  ///< stream: time to the first batch
    StreamStats spent;                   ///< blocks, stream: statistics of the best pass

    double bytes_per_s() const {
        return static_cast<double>(bytes) / best_s;
    }  ///< rate of decoded data

    /// Returns the rate of bytes as stored in the files.
    double stored_per_s() const { return static_cast<double>(stored_bytes) / best_s; }
};

/// The results, by row.
struct IoMeasurements {
    std::uint64_t samples = 0;           ///< number of measured samples
    std::uint64_t bytes_per_sample = 0;  ///< decoded, all fields
    std::uint64_t decoded_bytes = 0;     ///< size of the measured samples
    std::uint64_t stored_bytes = 0;      ///< size of the measured samples
    std::string codec;                   ///< name for --codec
    std::vector<IoRow> rows;             ///< one for each method, state and number of threads
    std::vector<std::string> notes;      ///< what could not be measured, and why

    /// Returns the row of that method, state and number of threads; nullptr if it was not measured.
    const IoRow* find(IoWay way, CacheState state, int threads) const;

    /// Returns the rate of stored bytes divided by pread's with the same threads and state.
    std::optional<double> share_of_pread(const IoRow& row) const;
};

/// Measures all of `plan` in turns. For CacheState::cold it drops the shards' pages, and only
/// theirs, from the page cache. Errors: those of BlockReader and BatchStream; E102 for threads < 1.
IoMeasurements measure_io(std::shared_ptr<const DatasetIndex> index, const IoPlan& plan);

/// Returns one sentence for each state: the rate of the stream, its share of the limit, the stage
/// that binds it, and what would help.
std::vector<std::string> io_verdicts(const IoMeasurements& measured);

/// Returns the same for programs.
Json io_json(const IoMeasurements& measured);

/// Drops the shards' pages from the page cache; unwritten ones are written first. Returns the share
/// of pages still there (for memory file systems: all).
double drop_page_cache(const DatasetIndex& index);

}  // namespace lockstep
