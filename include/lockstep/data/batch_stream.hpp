// SPDX-License-Identifier: Apache-2.0
/// @file
/// A rank's batches, step after step, read ahead by I/O threads.
#pragma once

#include "lockstep/core/page_lock.hpp"
#include "lockstep/data/dataset_index.hpp"
#include "lockstep/data/order.hpp"

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// What becomes of a file's pages in the operating system's cache once they are read.
enum class PageCache {
    keep,  ///< the next epoch finds them there, if memory lasts
    drop,  ///< for data larger than memory, and where the cache counts against the job's limit
};

/// What a stream does about bytes that it cannot read or that are not what was written.
enum class BadData {
    fail,  ///< next() throws
    mask,  ///< the samples keep their slots and ids; their bytes are zero, Batch::valid says so
};

/// What becomes of the samples at the end of an epoch that do not fill a step.
enum class ShortStep {
    keep,  ///< they are a step of their own
    drop,  ///< the next epoch begins without them
};

class BatchSource;
class ResidentRows;

/// What a stream delivers and to whom. The sequence of samples depends on the first seven only.
struct StreamOptions {
    OrderKind order = OrderKind::lanes;      ///< or sequential (evaluation)
    std::uint64_t seed = 0;                  ///< of the order
    int lanes = 64;                          ///< G
    int window_blocks = 5;                   ///< K
    SamplePart part;                         ///< which samples there are
    std::int64_t batch = 128;                ///< global batch: samples of one step over all leaves
    ShortStep short_step = ShortStep::keep;  ///< of an epoch's end
    int virtual_ranks = 1;  ///< V: a step's samples are cut into V near-equal leaves
    int first_leaf = 0;     ///< the first of this rank's leaves
    int last_leaf = 1;      ///< one past the last
    /// 0: one at first, more while next() waits over 1 % and there are cores for them.
    int io_threads = 0;
    int most_io_threads = 8;                  ///< bound on what 0 grows to
    std::uint64_t memory_bytes = 256u << 20;  ///< bound on everything the stream holds
    PageCache page_cache = PageCache::keep;   ///< what becomes of pages that were read
    BadData on_bad_data = BadData::fail;      ///< what becomes of samples that cannot be read
    int memory_sharers = 1;  ///< processes like this one under the same memory limit
    std::filesystem::path system_root = "/";  ///< where proc/ and sys/ are found
    /// Batches in page-locked memory (gpu_page_lock() gives it): a GPU copies them during its work.
    PageLock page_lock = {};
};

/// The position in the job's sample sequence at which a step begins. All that a checkpoint needs.
struct StreamPosition {
    std::uint64_t epoch = 0;     ///< from 0
    std::uint64_t consumed = 0;  ///< samples of this epoch before this step, over all ranks
    bool operator==(const StreamPosition&) const = default;
};

/// The position after a step of `batch` samples from `position`: the next epoch's if that ends
/// this.
StreamPosition next_position(StreamPosition position,
                             std::int64_t batch,
                             std::uint64_t samples,
                             ShortStep short_step = ShortStep::keep);

/// One leaf's part of a step.
struct LeafRows {
    int leaf = 0;               ///< its number among all V
    std::size_t first_row = 0;  ///< in the batch's buffers
    std::size_t rows = 0;       ///< may be 0 in a short step
};

/// The samples of one step that this rank computes. Buffers are 64-byte aligned, leaf after leaf,
/// and lent by the stream with all that the spans show: valid until the Batch is destroyed, which
/// returns them to the pool.
struct Batch {
    StreamPosition position;           ///< of this step
    StreamPosition next;               ///< of the step after it (crosses to the next epoch)
    std::int64_t samples_in_step = 0;  ///< over all ranks
    std::span<const LeafRows> leaves;  ///< this rank's, in their order
    std::span<const std::uint64_t> sample_ids;  ///< global, by row
    /// By row: 1, or 0 if the sample could not be read and its bytes are zero in all fields.
    /// Empty when all are valid.
    std::span<const std::uint8_t> valid;
    /// By field of the index: rows x bytes_per_sample bytes.
    std::span<const std::span<const std::byte>> fields;
    std::shared_ptr<void> lease;  ///< keeps what the spans show
};

/// The use of a stream's time, in seconds summed over its threads, and its work.
struct StreamStats {
    double read_s = 0;                 ///< of the I/O threads, reading files
    double verify_s = 0;               ///< of the I/O threads, hashing
    double decode_s = 0;               ///< of the I/O threads, decompressing
    double assemble_s = 0;             ///< of the assembler
    double wait_s = 0;                 ///< of the caller, in next()
    std::uint64_t bytes_read = 0;      ///< from files
    std::uint64_t blocks_read = 0;     ///< from files
    std::uint64_t retries = 0;         ///< blocks read again: not as their hash says
    std::uint64_t requests = 0;        ///< reads of files; each may bring many blocks
    std::uint64_t masked_samples = 0;  ///< delivered with zero bytes
    int io_threads = 0;                ///< in use now
};

/// What several threads did together; `total.io_threads` stays.
StreamStats& operator+=(StreamStats& total, const StreamStats& part);

/// The difference between two readings of the same stream.
StreamStats operator-(const StreamStats& later, const StreamStats& earlier);

/// Whether a caller that was served for `elapsed_s` seconds waited for more than 1 % of them.
bool is_input_bound(const StreamStats& stats, double elapsed_s);

/// What such a caller waited for: "not input-bound" if it is not; else the busiest: "I/O",
/// "verify", "decode" or "assemble".
std::string_view binding_stage(const StreamStats& stats, double elapsed_s);

/// Reads ahead of next() across epoch boundaries with I/O threads, within `memory_bytes`; an empty
/// pool is the back pressure. Errors of I/O threads surface in next(): E213 and kin naming shard,
/// block and offset. The destructor stops and joins the threads; batches may outlive it. At most
/// three batches may be held while another is asked for.
///
/// A rank reads each window of its lanes once an epoch if the number of lanes divides the batch and
/// the virtual ranks divide the lanes; else ranks share windows and read up to twice as much.
///
/// With `resident` rows, loaded and sealed, batches are gathered from memory, bit for bit the same:
/// no files, no windows; `io_threads` is then the number of threads that gather.
class BatchStream {
  public:
    /// Errors: E102, E106 (no step in an epoch), E224, E306 (start), and page_lock's own
    BatchStream(std::shared_ptr<const DatasetIndex> index,
                const StreamOptions& options,
                StreamPosition start = {},
                std::shared_ptr<const ResidentRows> resident = {});
    ~BatchStream();

    /// Moves the threads along; what was moved from may only be destroyed.
    BatchStream(BatchStream&&) noexcept;

    /// The next step's batch; the last step of an epoch may be short, see ShortStep. Never ends.
    Batch next();

    StreamStats stats() const;           ///< since it was made
    std::uint64_t memory_bytes() const;  ///< what the pools may hold
    std::string memory_text() const;     ///< the same by pool, one line for the log

  private:
    std::unique_ptr<BatchSource> source_;
    std::array<std::weak_ptr<void>, 4> lent_;  ///< leases of what the caller holds
};

}  // namespace lockstep
