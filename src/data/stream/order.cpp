// SPDX-License-Identifier: Apache-2.0
// A shuffle that needs little memory, reads files in large pieces, and is one sequence that ranks
// and batches only cut. With 8 blocks, G = 2 lanes and windows of K = 2 blocks:
//
//     as stored      b0 b1 b2 b3 b4 b5 b6 b7
//     permuted       b5 b2 b7 b0 b3 b6 b1 b4        by (seed, epoch)
//     lane 0         [b5 b2][b7 b0]                 rows of a window are permuted among themselves,
//     lane 1         [b3][b6 b1][b4]                by (seed, epoch, lane, the window's begin)
//     the epoch      lane 0, lane 1, lane 0, lane 1 ...  one sample of each in turn
//
// So a batch draws from G windows in G places of the data set at once, which mixes well, and only
// one window per lane must be in memory. First windows are shorter by lane; otherwise all lanes
// would need their next window in the same step, and the disks would idle in between. Lanes are cut
// at rows, not at blocks: a block on the border belongs to both (lane_borders.cpp).
//
// What must never happen:
// - The sequence depends on anything but (blocks, seed, epoch, G, K): on ranks, batch size,
//   threads, or where a run was interrupted. A resumed run on other ranks would see samples twice
//   or never.
// - A permutation of the standard library: std::shuffle gives other sequences in other libraries.
// - A change here that nobody meant: it changes every run's samples. The test IsPinned says so.
//
// Tested: data/stream/order_test.cpp (each sample once, independence of the cuts, mixing, pinned
// values), soak/order (many layouts).

#include "lockstep/data/order.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/random.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

namespace lockstep {
namespace {

// Of `samples` distributed to `lanes` in turn, returns how many `lane` has among the first
// `samples`.
std::uint64_t dealt_to(int lane, std::uint64_t samples, int lanes) {
    const auto first = static_cast<std::uint64_t>(lane);
    return samples <= first ? 0 : (samples - first - 1) / static_cast<std::uint64_t>(lanes) + 1;
}

// `rows` of the rows of `block` that are in `part`, after the first `skipped` of these.
void add_runs_in(const SamplePart& part,
                 const RowBlock& block,
                 std::uint64_t skipped,
                 std::uint64_t rows,
                 std::vector<RowRun>& runs) {
    bool continues = false;
    for (std::uint64_t sample = block.first; rows > 0; ++sample) {
        const bool is_taken = part.holds(sample) && (skipped == 0 || skipped-- == 0);
        if (is_taken && continues)
            ++runs.back().rows;
        else if (is_taken)
            runs.push_back({sample, 1});
        continues = is_taken;
        rows -= is_taken ? 1 : 0;
    }
}

}  // namespace

std::string_view order_name(OrderKind kind) {
    return order_names.at(static_cast<std::size_t>(kind));
}

EpochOrder::EpochOrder(std::vector<RowBlock> blocks, const OrderSpec& spec, std::uint64_t epoch)
    : spec_(spec), epoch_(epoch), blocks_(std::move(blocks)), starts_(blocks_.size() + 1) {
    check(spec.lanes >= 1 && spec.window_blocks >= 1,
          "E102",
          fmt::format("{} lanes with windows of {} blocks", spec.lanes, spec.window_blocks),
          "an order needs at least one lane and one block per window");
    expect(!blocks_.empty(), "an order has blocks");
    if (spec.kind != OrderKind::sequential)
        shuffle(std::span(blocks_), CounterRandom(Purpose::block_order, {spec.seed, epoch}));
    std::transform_inclusive_scan(
        blocks_.begin(),
        blocks_.end(),
        starts_.begin() + 1,
        std::plus<>(),
        [](const RowBlock& block) { return std::uint64_t{block.used()}; },
        std::uint64_t{0});
    if (spec.kind == OrderKind::uniform) window_blocks_ = blocks_.size();
    if (spec.kind != OrderKind::lanes) return;
    lanes_ = static_cast<int>(std::min(static_cast<std::size_t>(spec.lanes), blocks_.size()));
    window_blocks_ = static_cast<std::uint64_t>(spec.window_blocks);
}

std::uint64_t EpochOrder::lane_samples_before(int lane, std::uint64_t position) const {
    return dealt_to(lane, position, lanes_);
}

std::uint64_t EpochOrder::lane_start(int lane) const {
    const auto index = static_cast<std::uint64_t>(lane), count = static_cast<std::uint64_t>(lanes_);
    return index * (samples() / count) + std::min(index, samples() % count);
}

std::size_t EpochOrder::block_at(std::uint64_t row) const {
    return static_cast<std::size_t>(std::ranges::upper_bound(starts_, row) - starts_.begin()) - 1;
}

LaneRange EpochOrder::window_at(int lane, std::uint64_t position) const {
    const std::uint64_t start = lane_start(lane), length = lane_samples(lane);
    const std::size_t first_block = block_at(start);
    const std::size_t block = block_at(start + position) - first_block;
    // The first window is shorter, by up to K - 1 blocks, so that lanes refill at different times.
    const std::size_t first_window = window_blocks_ - window_blocks_ *
                                                          static_cast<std::uint64_t>(lane) /
                                                          static_cast<std::uint64_t>(lanes_);
    std::size_t begin = 0, end = first_window;
    if (block >= first_window) {
        begin = first_window + (block - first_window) / window_blocks_ * window_blocks_;
        end = begin + window_blocks_;
    }
    const std::uint64_t first_row = starts_[first_block + begin];
    const std::uint64_t last_row = starts_[std::min(first_block + end, blocks_.size())];
    return {lane, std::max(first_row, start) - start, std::min(last_row - start, length)};
}

std::optional<LaneBorder> EpochOrder::border_before(int lane) const {
    if (lane < 1 || lane >= lanes_) return {};
    const std::uint64_t cut = lane_start(lane), before = lane_start(lane - 1);
    const std::size_t block = block_at(cut);
    if (starts_[block] == cut) return {};
    return LaneBorder{{lane - 1, std::max(starts_[block], before) - before, cut - before},
                      {lane, 0, std::min(starts_[block + 1] - cut, lane_samples(lane))}};
}

std::uint64_t EpochOrder::block_reads() const {
    std::uint64_t reads = blocks_.size();
    for (int lane = 1; lane < lanes_; ++lane) reads += border_before(lane) ? 1 : 0;
    return reads;
}

std::uint64_t EpochOrder::max_block_rows() const {
    return std::ranges::max(blocks_, {}, &RowBlock::used).used();
}

std::uint64_t EpochOrder::max_window_rows() const {
    return std::min(window_blocks_ * max_block_rows(), lane_samples(0));
}

std::vector<RowRun> EpochOrder::rows_of(const LaneRange& window) const {
    std::vector<RowRun> runs;
    std::uint64_t row = lane_start(window.lane) + window.begin;
    const std::uint64_t end = lane_start(window.lane) + window.end;
    for (std::size_t i = block_at(row); row < end; ++i) {
        const std::uint64_t inside = row - starts_[i];
        const std::uint64_t rows = std::min(blocks_[i].used() - inside, end - row);
        if (blocks_[i].left_out == 0)
            runs.push_back({blocks_[i].first + inside, rows});
        else
            add_runs_in(spec_.part, blocks_[i], inside, rows, runs);
        row += rows;
    }
    return runs;
}

void EpochOrder::permute(const LaneRange& window, std::span<std::uint32_t> values) const {
    if (spec_.kind == OrderKind::sequential) return;
    shuffle(
        values,
        CounterRandom(Purpose::window_order,
                      {spec_.seed, epoch_, static_cast<std::uint64_t>(window.lane), window.begin}));
}

std::vector<std::uint32_t> EpochOrder::permutation_of(const LaneRange& window) const {
    std::vector<std::uint32_t> permutation(window.size());
    std::iota(permutation.begin(), permutation.end(), 0u);
    permute(window, permutation);
    return permutation;
}

std::vector<std::uint32_t> EpochOrder::samples_of(const LaneRange& window) const {
    expect(samples() <= std::uint64_t{1} << 32, "samples have numbers of 32 bits");
    std::vector<std::uint32_t> samples(window.size());
    auto to = samples.begin();
    for (const RowRun& run : rows_of(window)) {
        const auto end = to + static_cast<std::ptrdiff_t>(run.rows);
        std::iota(to, end, static_cast<std::uint32_t>(run.first));
        to = end;
    }
    permute(window, samples);  // of the samples what it is of their places
    return samples;
}

std::uint64_t EpochOrder::sample_at(std::uint64_t position) const {
    const auto lanes = static_cast<std::uint64_t>(lanes_);
    const std::uint64_t lane_position = position / lanes;
    const LaneRange window = window_at(static_cast<int>(position % lanes), lane_position);
    std::uint64_t row = permutation_of(window)[lane_position - window.begin];
    for (const RowRun& run : rows_of(window)) {
        if (row < run.rows) return run.first + row;
        row -= run.rows;
    }
    expect(false, "a window's permutation stays within its rows");
    return 0;
}

std::uint64_t leaf_begin(std::uint64_t samples, int leaf, int leaves) {
    const auto part = static_cast<std::uint64_t>(leaf), whole = static_cast<std::uint64_t>(leaves);
    return (samples * part + whole - 1) / whole;
}

std::vector<LaneRange> leaf_slice(
    std::uint64_t begin, std::uint64_t end, int lanes, int first_leaf, int last_leaf, int leaves) {
    const std::uint64_t first = leaf_begin(end - begin, first_leaf, leaves);
    const std::uint64_t last = leaf_begin(end - begin, last_leaf, leaves);
    std::vector<LaneRange> slice;
    std::uint64_t seen = 0;
    for (int lane = 0; lane < lanes && seen < last; ++lane) {
        const std::uint64_t lane_begin = dealt_to(lane, begin, lanes);
        const std::uint64_t count = dealt_to(lane, end, lanes) - lane_begin;
        const std::uint64_t from = std::max(seen, first), to = std::min(seen + count, last);
        if (from < to) slice.push_back({lane, lane_begin + from - seen, lane_begin + to - seen});
        seen += count;
    }
    return slice;
}

}  // namespace lockstep
