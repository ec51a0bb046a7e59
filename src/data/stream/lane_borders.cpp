// SPDX-License-Identifier: Apache-2.0
// Lanes are cut at rows, not at blocks. If a lane has few blocks, most blocks would be expanded
// twice, for both sides of a border:
//
//     permuted blocks   |     b5     |     b2     |     b7     |
//     lanes             |  lane 0 |  lane 1    |   lane 2      |
//                               b5: lanes 0, 1   b7: lanes 1, 2
//
//     the window that comes first   reads b5 whole: its own rows, and its neighbour's, into
//     KeptRows the one that comes later      copies them
//
// The walk decides which comes first, not the threads: so the plan records it, and a window that
// finds its rows kept leaves their block out of its requests.
//
// What must never happen:
// - Two threads wait for each other. A window waits only for one that was issued before it, and
//   whoever has rows to keep settles them before it waits, however its loading ends.
// - Rows are kept for a window that never comes: those of a border are dropped when the next epoch
//   meets it, and of lanes that another rank reads there are none.
// - Damage is found by one and used by the other: a window with a bad block keeps nothing, and the
//   other reads, and says so, itself.
//
// Tested: data/stream/lane_borders_test.cpp (each block once, any memory, damage, resumed epochs).

#include "lane_borders.hpp"

#include "memory.hpp"

#include <algorithm>

namespace lockstep {
namespace {

// Share of all blocks: fewer blocks on borders are not worth memory.
constexpr double few = 0.05;

}  // namespace

bool KeptRows::take_room(const DatasetIndex& index) {
    const std::uint64_t wanted = row_memory(index, rows_.size());
    std::uint64_t left = *room_;
    while (left >= wanted && !room_->compare_exchange_weak(left, left - wanted)) continue;
    if (left < wanted) return false;
    bytes_ = wanted;
    memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes_);
    fields_ = divided(index, rows_.size(), {memory_.get(), bytes_});
    return true;
}

void KeptRows::settle(bool are_whole) {
    State before = State::awaited;
    state_.compare_exchange_strong(before, are_whole ? State::whole : State::failed);
    state_.notify_all();
}

bool KeptRows::are_whole() const {
    state_.wait(State::awaited);
    return state_ == State::whole;
}

void KeptRows::copy_to(std::span<const std::span<std::byte>> fields) const {
    for (std::size_t f = 0; f < fields_.size(); ++f)
        std::ranges::copy(fields_[f], fields[f].begin());
}

LaneRange unkept_rows(LaneRange window, const SharedRows& shared) {
    for (const auto& found : shared.finds) {
        const LaneRange& rows = found->rows();
        if (rows.begin <= window.begin)
            window.begin = std::max(window.begin, rows.end);
        else
            window.end = rows.begin;
    }
    return window;
}

LaneBorders::LaneBorders(std::set<int> lanes, StreamPosition start, std::uint64_t bytes)
    : lanes_(std::move(lanes)),
      start_(start),
      room_(std::make_shared<std::atomic<std::uint64_t>>(bytes)) {
    if (bytes > 0 && !lanes_.empty()) met_.resize(static_cast<std::size_t>(*lanes_.rbegin()) + 1);
}

SharedRows LaneBorders::of(const EpochWindow& window) {
    SharedRows shared;
    const int lane = window.range.lane;
    for (const int behind : {lane, lane + 1})
        if (met_.size() > static_cast<std::size_t>(behind) && lanes_.contains(behind - 1) &&
            lanes_.contains(behind))
            share(window, behind, shared);
    return shared;
}

void LaneBorders::share(const EpochWindow& window, int border, SharedRows& shared) {
    const auto common = window.order->border_before(border);
    if (!common) return;
    const bool is_behind = window.range.lane == border;
    const LaneRange& own = is_behind ? common->after : common->before;
    if (own.begin < window.range.begin || own.end > window.range.end) return;
    Met& met = met_[static_cast<std::size_t>(border)];
    if (met.order == window.order) {
        if (auto rows = std::exchange(met.rows, nullptr)) shared.finds.push_back(std::move(rows));
        return;
    }
    met = {window.order, nullptr};
    const LaneRange& other = is_behind ? common->before : common->after;
    const bool was_passed =
        window.order->epoch() == start_.epoch &&
        other.end <= window.order->lane_samples_before(other.lane, start_.consumed);
    if (was_passed) return;
    met.rows = std::make_shared<KeptRows>(other, room_);
    shared.keeps.push_back(met.rows);
}

std::uint64_t border_bytes(const DatasetIndex& index, const EpochOrder& order, std::size_t lanes) {
    const auto blocks = static_cast<double>(index.blocks().size());
    if (static_cast<double>(lanes - 1) <= few * blocks) return 0;
    constexpr std::uint64_t epochs = 2;  // epochs that meet
    return epochs * (lanes - 1) * row_memory(index, order.max_block_rows());
}

}  // namespace lockstep
