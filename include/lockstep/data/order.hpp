// SPDX-License-Identifier: Apache-2.0
/// @file
/// In which order an epoch's samples come: pure functions of (blocks, seed, epoch, lanes, window).
#pragma once

#include "lockstep/core/order_kind.hpp"
#include "lockstep/data/manifest.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace lockstep {

std::string_view order_name(OrderKind kind);  ///< its word of order_names

/// Everything, with the blocks, that an epoch's sequence depends on.
struct OrderSpec {
    OrderKind kind = OrderKind::lanes;  ///< how samples are shuffled
    std::uint64_t seed = 0;             ///< another one, another order
    int lanes = 64;                     ///< G; at most one per block is used
    int window_blocks = 5;              ///< K
    SamplePart part;                    ///< by which rows of blocks were left out
};

/// Part of one lane, in lane positions, half-open.
struct LaneRange {
    int lane = 0;                                       ///< below G
    std::uint64_t begin = 0;                            ///< the first position
    std::uint64_t end = 0;                              ///< one past the last
    std::uint64_t size() const { return end - begin; }  ///< samples
    bool operator==(const LaneRange&) const = default;
};

/// A block's rows in two lanes: the end of one and the beginning of the next.
struct LaneBorder {
    LaneRange before, after;
};

/// Consecutive samples.
struct RowRun {
    std::uint64_t first = 0;  ///< global sample number
    std::uint64_t rows = 0;   ///< from there on
    bool operator==(const RowRun&) const = default;
};

/// The sequence of one epoch.
///
/// The blocks are permuted and their rows, end to end, cut into G lanes of near-equal length. A
/// lane is read window by window: K whole blocks (fewer in its first window, which staggers the
/// lanes), whose rows are permuted. Position p of the epoch is position p / G of lane p % G.
/// Nothing here knows of batches, leaves, ranks or threads: they only cut the sequence. Cost: one
/// permutation of the blocks when made; one window's rows for each question.
class EpochOrder {
  public:
    /// `blocks` cover the samples once; of a part they are what blocks_in() gives. Errors: E102 for
    /// `spec`.
    EpochOrder(std::vector<RowBlock> blocks, const OrderSpec& spec, std::uint64_t epoch);

    std::uint64_t samples() const { return starts_.back(); }  ///< of the epoch
    int lanes() const { return lanes_; }                      ///< in use: at most one per block
    std::uint64_t lane_samples(int lane) const;               ///< positions of that lane

    /// How many of them are before position `position` of the epoch.
    std::uint64_t lane_samples_before(int lane, std::uint64_t position) const;

    /// The window that holds position `position` of `lane`; its range lies within the lane.
    LaneRange window_at(int lane, std::uint64_t position) const;

    /// The block that both `lane` - 1 and `lane` have rows of; nothing if a block begins where the
    /// lane does, or if there are no such lanes.
    std::optional<LaneBorder> border_before(int lane) const;

    /// Of blocks, in all lanes: one on the border of two is read for both.
    std::uint64_t block_reads() const;

    std::uint64_t max_block_rows() const;   ///< no block has more of them in the epoch
    std::uint64_t max_window_rows() const;  ///< no window has more

    /// What to read for a window: its rows, in the order they are stored and then permuted.
    std::vector<RowRun> rows_of(const LaneRange& window) const;

    /// Position window.begin + i of the lane is row permutation[i] of rows_of(window), end to end.
    std::vector<std::uint32_t> permutation_of(const LaneRange& window) const;

    /// The samples at the window's lane positions, one after the other: what rows_of() and
    /// permutation_of() give together. At most 2^32 samples.
    std::vector<std::uint32_t> samples_of(const LaneRange& window) const;

    /// The sample at `position` of the epoch, from first principles (slow; for tests and tools).
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
    std::vector<std::uint64_t> starts_;  // of each block in the permuted rows; then their sum
};

/// First of `samples` that leaf `leaf` of `leaves` computes: ceil(samples * leaf / leaves), so that
/// leaf 0 has a sample whenever there is one.
std::uint64_t leaf_begin(std::uint64_t samples, int leaf, int leaves);

/// The samples of leaves [first_leaf, last_leaf) in the step that covers epoch positions
/// [begin, end): sorted by (lane, lane position), then cut into `leaves` near-equal parts.
std::vector<LaneRange> leaf_slice(
    std::uint64_t begin, std::uint64_t end, int lanes, int first_leaf, int last_leaf, int leaves);

}  // namespace lockstep
