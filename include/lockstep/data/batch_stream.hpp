// SPDX-License-Identifier: Apache-2.0
// A rank's batches, step after step, read ahead by I/O threads.
#pragma once

#include "lockstep/data/dataset_index.hpp"
#include "lockstep/data/order.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace lockstep {

/// What a stream delivers and to whom. The sequence of samples depends on the first five only.
struct StreamOptions {
    OrderKind order = OrderKind::lanes;  ///< or sequential (evaluation)
    std::uint64_t seed = 0;
    int lanes = 64;                     ///< G
    int window_blocks = 4;              ///< K
    std::int64_t batch = 128;           ///< global batch: samples of one step over all leaves
    int virtual_ranks = 1;              ///< V: a step's samples are cut into V near-equal leaves
    int first_leaf = 0, last_leaf = 1;  ///< this rank's leaves, half-open
    int io_threads = 1;
    std::uint64_t memory_bytes = 256u << 20;  ///< bound on everything the stream holds
};

/// Where in the job's sample sequence a step begins. All that a checkpoint needs.
struct StreamPosition {
    std::uint64_t epoch = 0;
    std::uint64_t consumed = 0;  ///< samples of this epoch before this step, over all ranks
    bool operator==(const StreamPosition&) const = default;
};

/// The position after a step of `batch` samples from `position`: the next epoch's if that ends
/// this.
StreamPosition next_position(StreamPosition position, std::int64_t batch, std::uint64_t samples);

/// One leaf's part of a step.
struct LeafRows {
    int leaf = 0;
    std::size_t first_row = 0, rows = 0;  ///< in the batch's buffers; rows may be 0 in a short step
};

/// The samples of one step that this rank computes. Buffers are 64-byte aligned, leaf after leaf,
/// and lent by the stream: valid until the Batch is destroyed, which returns them to the pool.
struct Batch {
    StreamPosition position;           ///< of this step
    StreamPosition next;               ///< of the step after it (crosses to the next epoch)
    std::int64_t samples_in_step = 0;  ///< over all ranks
    std::vector<LeafRows> leaves;
    std::vector<std::uint64_t> sample_ids;  ///< global, by row
    /// By field of the index: rows x bytes_per_sample bytes.
    std::vector<std::span<const std::byte>> fields;
    std::shared_ptr<void> lease;  ///< keeps the buffers
};

/// Where a stream's time went, in seconds summed over its threads, and bytes.
struct StreamStats {
    double read_s = 0, verify_s = 0, decode_s = 0, assemble_s = 0, wait_s = 0;
    std::uint64_t bytes_read = 0, blocks_read = 0, retries = 0;
};

/// Reads ahead of next() across epoch boundaries with `io_threads`, within `memory_bytes`; an empty
/// pool is the back pressure. Errors of I/O threads surface in next(): E213 and kin naming shard,
/// block and offset. The destructor stops and joins the threads; batches may outlive it. At most
/// three batches may be held while another is asked for.
///
/// A rank reads each window of its lanes once an epoch if the number of lanes divides the batch and
/// the virtual ranks divide the lanes; else ranks share windows and read up to twice as much.
class BatchStream {
  public:
    BatchStream(std::shared_ptr<const DatasetIndex> index,
                const StreamOptions& options,
                StreamPosition start = {});  ///< Errors: E102, E106 (options), E306 (start)
    ~BatchStream();
    BatchStream(BatchStream&&) noexcept;

    /// The next step's batch; the last step of an epoch may be short. Never ends.
    Batch next();

    StreamStats stats() const;
    std::uint64_t memory_bytes() const;  ///< what the pools hold

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
