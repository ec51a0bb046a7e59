// SPDX-License-Identifier: Apache-2.0
#include "collectives/staged_messages.hpp"

#include "collectives/sum_kernels.hpp"

#include <algorithm>
#include <cstring>

namespace lockstep {
namespace {

/// While one piece is read in a box, the next is written to the other.
constexpr std::size_t boxes = 2;

}  // namespace

/// All ranks' pieces of one message together stay in a second-level cache.
std::size_t StagedMessages::piece_bytes(int ranks) {
    constexpr std::size_t together = 256 << 10, least = 4096;
    return std::max(together / static_cast<std::size_t>(ranks) / 64 * 64, least);
}

std::size_t StagedMessages::rank_bytes(int ranks) {
    return boxes * static_cast<std::size_t>(ranks + 1) * piece_bytes(ranks);
}

StagedMessages::StagedMessages(std::byte* memory, SharedMeeting& meeting)
    : memory_(memory),
      meeting_(meeting),
      rank_(meeting.rank()),
      ranks_(meeting.ranks()),
      piece_bytes_(piece_bytes(meeting.ranks())),
      order_(balanced_order(meeting.ranks())) {
    std::memset(box(rank_, 0, 0), 0, rank_bytes(ranks_));
}

std::byte* StagedMessages::box(int rank, std::size_t piece, int index) const {
    const std::size_t turn = (pieces_before_ + piece) % boxes;
    const std::size_t place =
        turn * static_cast<std::size_t>(ranks_ + 1) + static_cast<std::size_t>(index);
    return memory_ + rank_bytes(ranks_) * static_cast<std::size_t>(rank) + place * piece_bytes_;
}

ByteRange StagedMessages::range_of(int stripe, const Message& message, std::size_t piece) const {
    const ByteRange all = byte_stripe(message.bytes, stripe, ranks_);
    const auto boundary = [&](std::size_t i) {
        return std::min(all.begin + i * piece_bytes_, all.end);
    };
    return {boundary(piece), boundary(piece + 1)};
}

std::vector<StagedMessages::Stage> StagedMessages::stages_of(SharedOperation operation) {
    using Self = StagedMessages;
    switch (operation) {
        case SharedOperation::all_reduce:
            return {&Self::share, &Self::sum, &Self::fetch};
        case SharedOperation::reduce_scatter:
            return {&Self::share, &Self::sum};
        case SharedOperation::all_gather:
            return {&Self::offer, &Self::fetch};
        case SharedOperation::broadcast:
            return {&Self::send, &Self::receive};
        default:
            return {};
    }
}

void StagedMessages::run(const SharedCall& call, const Message& message) {
    const std::vector<Stage> stages = stages_of(call.operation);
    const std::size_t largest = byte_stripe(message.bytes, ranks_ - 1, ranks_).size();
    const std::size_t pieces = (largest + piece_bytes_ - 1) / piece_bytes_;
    const std::size_t steps = pieces + stages.size() - 1;
    for (std::size_t step = 0; step < steps; ++step) {
        if (step > 0) meeting_.meet();
        for (std::size_t s = 0; s < stages.size() && s <= step; ++s)
            if (step - s < pieces) (this->*stages[s])(call, message, step - s);
    }
    pieces_before_ += pieces;
}

void StagedMessages::share(const SharedCall&, const Message& message, std::size_t piece) {
    for (int owner = 0; owner < ranks_; ++owner) {
        if (owner == rank_) continue;
        const ByteRange range = range_of(owner, message, piece);
        std::memcpy(part(rank_, piece, owner), message.data + range.begin, range.size());
    }
}

void StagedMessages::sum(const SharedCall& call, const Message& message, std::size_t piece) {
    const ByteRange range = range_of(rank_, message, piece);
    std::byte* mine = message.data + range.begin;
    inputs_.clear();
    for (int rank = 0; rank < ranks_; ++rank)
        inputs_.push_back(rank == rank_ ? mine : part(rank, piece, rank_));
    outputs_.assign(1, mine);
    if (call.operation == SharedOperation::all_reduce) outputs_.push_back(result(rank_, piece));
    sum_into(message.type, order_, inputs_, outputs_, range.size() / size_of(message.type));
}

void StagedMessages::offer(const SharedCall&, const Message& message, std::size_t piece) {
    const ByteRange range = range_of(rank_, message, piece);
    std::memcpy(result(rank_, piece), message.data + range.begin, range.size());
}

void StagedMessages::fetch(const SharedCall&, const Message& message, std::size_t piece) {
    for (int owner = 0; owner < ranks_; ++owner) {
        if (owner == rank_) continue;
        const ByteRange range = range_of(owner, message, piece);
        std::memcpy(message.data + range.begin, result(owner, piece), range.size());
    }
}

void StagedMessages::send(const SharedCall& call, const Message& message, std::size_t piece) {
    for (int stripe = 0; stripe < ranks_ && rank_ == call.root; ++stripe) {
        const ByteRange range = range_of(stripe, message, piece);
        std::memcpy(part(rank_, piece, stripe), message.data + range.begin, range.size());
    }
}

void StagedMessages::receive(const SharedCall& call, const Message& message, std::size_t piece) {
    for (int stripe = 0; stripe < ranks_ && rank_ != call.root; ++stripe) {
        const ByteRange range = range_of(stripe, message, piece);
        std::memcpy(message.data + range.begin, part(call.root, piece, stripe), range.size());
    }
}

}  // namespace lockstep
