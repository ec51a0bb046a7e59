// SPDX-License-Identifier: Apache-2.0
/// @file
/// A rank's batches, step after step, read ahead by I/O threads.
#pragma once

#include "lockstep/core/pages.hpp"
#include "lockstep/data/dataset_index.hpp"
#include "lockstep/data/order.hpp"

#include <array>
#include <compare>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

/// Treatment of a file's pages in the operating system's cache after they are read.
enum class PageCache {
    keep,  ///< the next epoch finds them there, if memory suffices
    drop,  ///< for data larger than memory, or if the cache counts against the job's limit
};

/// Treatment of bytes that a stream cannot read or that differ from what was written.
enum class BadData {
    fail,  ///< next() throws
    mask,  ///< the samples keep their slots and ids; their bytes are zero, and Batch::valid marks
           ///< them
};

/// Treatment of the samples at the end of an epoch that do not fill a step.
enum class ShortStep {
    keep,  ///< they form a step of their own
    drop,  ///< the next epoch begins without them
};

class BatchSource;
class ResidentRows;

/// Settings of a stream. The sequence of samples depends on the first seven only.
struct StreamOptions {
    OrderKind order = OrderKind::lanes;      ///< or sequential (evaluation)
    std::uint64_t seed = 0;                  ///< seed of the order
    int lanes = 64;                          ///< G
    int window_blocks = 5;                   ///< K
    SamplePart part;                         ///< selection of samples
    std::int64_t batch = 128;                ///< global batch: samples of one step over all leaves
    ShortStep short_step = ShortStep::keep;  ///< treatment of an epoch's last samples
    int virtual_ranks = 1;  ///< V: a step's samples are cut into V near-equal leaves
    int first_leaf = 0;     ///< the first of this rank's leaves
    int last_leaf = 1;      ///< one past the last
    /// 0: one at first, and more while next() waits over 1 % of the time and cores are available.
    int io_threads = 0;
    int most_io_threads = 8;                  ///< upper bound for an automatic number
    std::uint64_t memory_bytes = 256u << 20;  ///< upper bound of all memory of the stream
    PageCache page_cache = PageCache::keep;   ///< treatment of pages that were read
    BadData on_bad_data = BadData::fail;      ///< treatment of samples that cannot be read
    int memory_sharers = 1;                   ///< number of processes that share the memory limit
    fs::path system_root = "/";               ///< folder that holds proc/ and sys/
    /// Locks batches in memory (result of gpu_page_lock()): a GPU then copies them during its work.
    PageLock page_lock = {};
};

/// The position in the sample sequence at which a step begins. A checkpoint needs nothing else.
struct StreamPosition {
    std::uint64_t epoch = 0;     ///< from 0
    std::uint64_t consumed = 0;  ///< samples of this epoch before this step, over all ranks
    auto operator<=>(const StreamPosition&) const = default;
};

/// Returns the position after a step of `batch` samples from `position`; it is in the next epoch if
/// the step ends this one.
StreamPosition next_position(StreamPosition position,
                             std::int64_t batch,
                             std::uint64_t samples,
                             ShortStep short_step = ShortStep::keep);

/// One leaf's part of a step.
struct LeafRows {
    int leaf = 0;               ///< number of the leaf among all V
    std::size_t first_row = 0;  ///< row in the batch's buffers
    std::size_t rows = 0;       ///< may be 0 in a short step
};

/// The samples of one step that this rank computes. Buffers are 64-byte aligned and hold leaf after
/// leaf. The stream lends them with all data of the spans: they are valid until the Batch is
/// destroyed, which returns them to the pool.
struct Batch {
    StreamPosition position;           ///< position of this step
    StreamPosition next;               ///< position of the step after it, perhaps in the next epoch
    std::int64_t samples_in_step = 0;  ///< over all ranks
    std::span<const LeafRows> leaves;  ///< this rank's leaves, in order
    std::span<const std::uint64_t> sample_ids;  ///< global, by row
    /// By row: 1, or 0 if the sample could not be read and its bytes are zero in all fields. Empty
    /// if all are valid.
    std::span<const std::uint8_t> valid;
    /// By field of the index: rows x bytes_per_sample bytes.
    std::span<const std::span<const std::byte>> fields;
    std::shared_ptr<void> lease;  ///< owns the memory of the spans
};

/// Times of a stream, in seconds summed over its threads, and its amounts of work.
struct StreamStats {
    double read_s = 0;                 ///< I/O threads: reading files
    double verify_s = 0;               ///< I/O threads: hashing
    double decode_s = 0;               ///< I/O threads: decompressing
    double assemble_s = 0;             ///< time of the assembler
    double wait_s = 0;                 ///< time of the caller in next()
    std::uint64_t bytes_read = 0;      ///< bytes read from files
    std::uint64_t blocks_read = 0;     ///< blocks read from files
    std::uint64_t retries = 0;         ///< blocks read again because their hash differed
    std::uint64_t requests = 0;        ///< reads of files; each may bring many blocks
    std::uint64_t masked_samples = 0;  ///< samples delivered with zero bytes
    int io_threads = 0;                ///< number in use
};

/// Adds the work of other threads; `total.io_threads` stays.
StreamStats& operator+=(StreamStats& total, const StreamStats& part);

/// Returns the difference between two readings of the same stream.
StreamStats operator-(const StreamStats& later, const StreamStats& earlier);

/// Returns true if a caller that was served for `elapsed_s` seconds waited for more than 1 % of
/// them.
bool is_input_bound(const StreamStats& stats, double elapsed_s);

/// Returns the stage that such a caller waited for: the busiest of "I/O", "verify", "decode" and
/// "assemble"; "not input-bound" if it did not wait.
std::string_view binding_stage(const StreamStats& stats, double elapsed_s);

/// Reads ahead of next() across epoch boundaries with I/O threads, within `memory_bytes`; reading
/// pauses while the pool is empty. Errors of I/O threads appear in next(): E213 and similar, naming
/// shard, block and offset. The destructor stops and joins the threads; batches may outlive it. At
/// most three batches may be held while another is requested.
///
/// A rank reads each window of its lanes once per epoch if the number of lanes divides the batch
/// and the virtual ranks divide the lanes. Otherwise ranks share windows and read up to twice as
/// much.
///
/// With `resident` rows, loaded and sealed, batches are gathered from memory with the same bits,
/// without files and windows. `io_threads` is then the number of threads that gather.
class BatchStream {
  public:
    /// Opens the stream. Errors: E102, E106 (no step in an epoch), E224, E306 (start), and those of
    /// page_lock.
    BatchStream(std::shared_ptr<const DatasetIndex> index,
                const StreamOptions& options,
                StreamPosition start = {},
                std::shared_ptr<const ResidentRows> resident = {});
    ~BatchStream();

    /// Moves ownership of the threads; the moved-from object may only be destroyed.
    BatchStream(BatchStream&&) noexcept;

    /// Returns the next step's batch; the last step of an epoch may be short, see ShortStep. The
    /// sequence has no end.
    Batch next();

    StreamStats stats() const;           ///< totals since construction
    std::uint64_t memory_bytes() const;  ///< capacity of the pools
    std::string memory_text() const;     ///< the same by pool, one line for the log

  private:
    std::unique_ptr<BatchSource> source_;
    std::array<std::weak_ptr<void>, 4> lent_;  ///< leases of batches that the caller holds
};

}  // namespace lockstep
