// SPDX-License-Identifier: Apache-2.0
/// @file
/// The order of an epoch's samples: pure functions of (blocks, seed, epoch, lanes, window).
#pragma once

#include "lockstep/core/order_kind.hpp"
#include "lockstep/data/manifest.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace lockstep {

std::string_view order_name(OrderKind kind);  ///< its name in order_names

/// All facts besides the blocks on which an epoch's sequence depends.
struct OrderSpec {
    OrderKind kind = OrderKind::lanes;  ///< way of shuffling
    std::uint64_t seed = 0;             ///< another seed gives another order
    int lanes = 64;                     ///< G; at most one per block is used
    int window_blocks = 5;              ///< K
    SamplePart part;                    ///< selection by which rows of blocks were left out
};

/// A half-open range of positions in one lane.
struct LaneRange {
    int lane = 0;                                       ///< below G
    std::uint64_t begin = 0;                            ///< the first position
    std::uint64_t end = 0;                              ///< one past the last
    std::uint64_t size() const { return end - begin; }  ///< number of samples
    bool operator==(const LaneRange&) const = default;
};

/// A block with rows in two lanes: at the end of one and the begin of the next.
struct LaneBorder {
    LaneRange before, after;
};

/// A range of consecutive samples.
struct RowRun {
    std::uint64_t first = 0;  ///< global sample number
    std::uint64_t rows = 0;   ///< number of samples
    bool operator==(const RowRun&) const = default;
};

/// The sequence of one epoch.
///
/// The blocks are permuted and their rows, end to end, cut into G lanes of near-equal length. A
/// lane is read window by window: K whole blocks (fewer in its first window, which staggers the
/// lanes), whose rows are permuted. Position p of the epoch is position p / G of lane p % G.
/// Batches, leaves, ranks and threads have no influence: they only cut the sequence. Cost: one
/// permutation of the blocks in the constructor; one window's rows for each query.
class EpochOrder {
  public:
    /// `blocks` cover the samples once; for a part they are the result of blocks_in(). Errors: E102
    /// for `spec`.
    EpochOrder(std::vector<RowBlock> blocks, const OrderSpec& spec, std::uint64_t epoch);

    std::uint64_t epoch() const { return epoch_; }            ///< number of the epoch
    std::uint64_t samples() const { return starts_.back(); }  ///< samples of the epoch
    int lanes() const { return lanes_; }                      ///< used lanes: at most one per block
    /// Returns the number of positions of that lane.
    std::uint64_t lane_samples(int lane) const { return lane_samples_before(lane, samples()); }

    /// Returns how many of them are before position `position` of the epoch.
    std::uint64_t lane_samples_before(int lane, std::uint64_t position) const;

    /// Returns the window that holds position `position` of `lane`; its range lies within the lane.
    LaneRange window_at(int lane, std::uint64_t position) const;

    /// Returns the block of which both `lane` - 1 and `lane` have rows; nothing if a block begins
    /// where the lane does, or if there are no such lanes.
    std::optional<LaneBorder> border_before(int lane) const;

    /// Returns the number of block reads in all lanes: one on the border of two is read twice.
    std::uint64_t block_reads() const;

    std::uint64_t max_block_rows() const;   ///< largest number of rows of a block in the epoch
    std::uint64_t max_window_rows() const;  ///< largest number of rows of a window

    /// Returns the rows to read for a window, in stored order, then permuted.
    std::vector<RowRun> rows_of(const LaneRange& window) const;

    /// Returns a permutation: position window.begin + i of the lane is row permutation[i] of
    /// rows_of(window), end to end.
    std::vector<std::uint32_t> permutation_of(const LaneRange& window) const;

    /// Returns the samples at the window's lane positions in order: rows_of() and permutation_of()
    /// together. At most 2^32 samples.
    std::vector<std::uint32_t> samples_of(const LaneRange& window) const;

    /// Returns the sample at `position` of the epoch by the definition (slow; for tests and tools).
    std::uint64_t sample_at(std::uint64_t position) const;

  private:
    void permute(const LaneRange& window, std::span<std::uint32_t> values) const;
    std::uint64_t lane_start(int lane) const;
    std::size_t block_at(std::uint64_t row) const;

    OrderSpec spec_;
    std::uint64_t epoch_;
    int lanes_ = 1;
    std::uint64_t window_blocks_ = 1;
    std::vector<RowBlock> blocks_;       // permuted
    std::vector<std::uint64_t> starts_;  // begin of each block in the permuted rows; then their sum
};

/// Returns the first of `samples` that leaf `leaf` of `leaves` computes: ceil(samples * leaf /
/// leaves), so that leaf 0 has a sample whenever there is one.
std::uint64_t leaf_begin(std::uint64_t samples, int leaf, int leaves);

/// Returns the samples of leaves [first_leaf, last_leaf) in the step that covers epoch positions
/// [begin, end): sorted by (lane, lane position), then cut into `leaves` near-equal parts.
std::vector<LaneRange> leaf_slice(
    std::uint64_t begin, std::uint64_t end, int lanes, int first_leaf, int last_leaf, int leaves);

}  // namespace lockstep
