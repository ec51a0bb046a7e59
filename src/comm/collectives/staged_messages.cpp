// SPDX-License-Identifier: Apache-2.0
#include "collectives/staged_messages.hpp"

#include "collectives/sum_kernels.hpp"

#include <algorithm>
#include <cstring>

namespace lockstep {
namespace {

/// While an owner sums one piece, the next is put into the other box.
constexpr std::size_t boxes_in_turn = 2;

/// Puts `in` into `box` and what was there into `out`. Even what is only taken out is overwritten:
/// see swap_through().
void pass(std::byte* box, std::byte* data, ByteRange in, ByteRange out) {
    const std::size_t both = std::min(in.size(), out.size());
    swap_through(box, data + in.begin, data + out.begin, both);
    if (in.size() > both) std::memcpy(box + both, data + in.begin + both, in.size() - both);
    if (out.size() > both) {
        std::byte* rest = data + out.begin + both;
        swap_through(box + both, rest, rest, out.size() - both);
    }
}

}  // namespace

/// All that is in flight stays in a second-level cache.
std::size_t StagedMessages::piece_bytes(int ranks) {
    constexpr std::size_t together = 256 << 10, least = 4096;
    return std::max(together / static_cast<std::size_t>(ranks) / 64 * 64, least);
}

std::size_t StagedMessages::bytes_for(int ranks) {
    const auto n = static_cast<std::size_t>(ranks);
    return boxes_in_turn * n * n * piece_bytes(ranks);
}

StagedMessages::StagedMessages(std::byte* memory, SharedMeeting& meeting)
    : memory_(memory),
      meeting_(meeting),
      rank_(meeting.rank()),
      ranks_(meeting.ranks()),
      piece_bytes_(piece_bytes(meeting.ranks())),
      order_(balanced_order(meeting.ranks())) {
    // The first touch decides on which memory node a page lies.
    std::memset(box(rank_, 0, 0), 0, bytes_for(ranks_) / order_.size());
}

std::byte* StagedMessages::box(int rank, std::size_t piece, int owner) const {
    const auto n = static_cast<std::size_t>(ranks_);
    const std::size_t turn = (pieces_before_ + piece) % boxes_in_turn;
    const std::size_t before = (static_cast<std::size_t>(rank) * boxes_in_turn + turn) * n;
    return memory_ + (before + static_cast<std::size_t>(owner)) * piece_bytes_;
}

std::size_t StagedMessages::pieces_of(const Message& message) const {
    const std::size_t largest = byte_stripe(message.bytes, ranks_ - 1, ranks_).size();
    return (largest + piece_bytes_ - 1) / piece_bytes_;
}

/// Empty beyond the end.
ByteRange StagedMessages::range_of(int owner, std::size_t piece, const Message& message) const {
    const ByteRange stripe = byte_stripe(message.bytes, owner, ranks_);
    const auto boundary = [&](std::size_t i) {
        return std::min(stripe.begin + i * piece_bytes_, stripe.end);
    };
    return {boundary(piece), boundary(piece + 1)};
}

void StagedMessages::share(const SharedCall& call, const Message& message) {
    step(0, call, message);
}

void StagedMessages::finish(const SharedCall& call, const Message& message) {
    const std::size_t pieces = pieces_of(message);
    const std::size_t last_step = pieces + (call.operation == SharedOperation::all_reduce ? 1 : 0);
    for (std::size_t number = 1; number <= last_step; ++number) {
        step(number, call, message);
        if (number < last_step) meeting_.meet();
    }
    pieces_before_ += pieces;
}

/// Step s puts piece s in, works on piece s - 1, and takes piece s - 2 out.
void StagedMessages::step(std::size_t number, const SharedCall& call, const Message& message) {
    const bool works = number > 0 && number <= pieces_of(message);
    switch (call.operation) {
        case SharedOperation::all_reduce:
        case SharedOperation::reduce_scatter:
            pass_on(number, call.operation == SharedOperation::all_reduce, message);
            if (works) sum(number - 1, message);
            break;
        case SharedOperation::all_gather:
            offer(number, message);
            if (works) take(number - 1, message);
            break;
        case SharedOperation::broadcast:
            if (rank_ == call.root) send(number, message);
            if (works && rank_ != call.root) receive(number - 1, call.root, message);
            break;
        default:
            break;
    }
}

void StagedMessages::pass_on(std::size_t number, bool takes_out, const Message& message) {
    for (int owner = 0; owner < ranks_; ++owner) {
        if (owner == rank_) continue;
        const bool has_sum = takes_out && number >= boxes_in_turn;
        const ByteRange out =
            has_sum ? range_of(owner, number - boxes_in_turn, message) : ByteRange{};
        pass(box(rank_, number, owner), message.data, range_of(owner, number, message), out);
    }
}

void StagedMessages::sum(std::size_t piece, const Message& message) {
    const ByteRange range = range_of(rank_, piece, message);
    outputs_.clear();
    for (int rank = 0; rank < ranks_; ++rank)
        outputs_.push_back(rank == rank_ ? message.data + range.begin : box(rank, piece, rank_));
    inputs_.assign(outputs_.begin(), outputs_.end());
    sum_into(message.type, order_, inputs_, outputs_, range.size() / size_of(message.type));
}

/// This rank's own stripe, into a box of every other.
void StagedMessages::offer(std::size_t piece, const Message& message) {
    const ByteRange range = range_of(rank_, piece, message);
    for (int rank = 0; rank < ranks_; ++rank)
        if (rank != rank_) pass(box(rank, piece, rank_), message.data, range, {});
}

void StagedMessages::take(std::size_t piece, const Message& message) {
    for (int owner = 0; owner < ranks_; ++owner)
        if (owner != rank_)
            pass(box(rank_, piece, owner), message.data, {}, range_of(owner, piece, message));
}

/// The root's own boxes, which all others look into.
void StagedMessages::send(std::size_t piece, const Message& message) {
    for (int owner = 0; owner < ranks_; ++owner)
        pass(box(rank_, piece, owner), message.data, range_of(owner, piece, message), {});
}

void StagedMessages::receive(std::size_t piece, int root, const Message& message) {
    for (int owner = 0; owner < ranks_; ++owner) {
        const ByteRange range = range_of(owner, piece, message);
        std::memcpy(message.data + range.begin, box(root, piece, owner), range.size());
    }
}

}  // namespace lockstep
