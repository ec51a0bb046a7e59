// SPDX-License-Identifier: Apache-2.0
#include "collectives/small_messages.hpp"

#include "collectives/sum_kernels.hpp"

#include <array>
#include <cstring>

namespace lockstep {

SmallMessages::SmallMessages(std::byte* memory, SharedMeeting& meeting)
    : memory_(memory),
      meeting_(meeting),
      order_(balanced_order(meeting.ranks())),
      inputs_(order_.size()) {}

/// What `rank` has that others need.
ByteRange SmallMessages::shared_by(int rank, const SharedCall& call) const {
    switch (call.operation) {
        case SharedOperation::all_gather:
            return byte_stripe(call.bytes, rank, meeting_.ranks());
        case SharedOperation::broadcast:
            return {0, rank == call.root ? call.bytes : 0};
        default:
            return {0, call.bytes};
    }
}

void SmallMessages::share(std::size_t turn, const SharedCall& call, const Message& message) {
    const ByteRange mine = shared_by(meeting_.rank(), call);
    std::memcpy(slot(turn, meeting_.rank()) + mine.begin, message.data + mine.begin, mine.size());
}

void SmallMessages::finish(std::size_t turn, const SharedCall& call, const Message& message) {
    const int self = meeting_.rank();
    if (call.operation == SharedOperation::all_reduce) return sum(turn, {0, call.bytes}, message);
    if (call.operation == SharedOperation::reduce_scatter)
        return sum(turn, byte_stripe(call.bytes, self, meeting_.ranks()), message);
    for (int rank = 0; rank < meeting_.ranks(); ++rank) {
        const ByteRange theirs = shared_by(rank, call);
        if (rank != self)
            std::memcpy(
                message.data + theirs.begin, slot(turn, rank) + theirs.begin, theirs.size());
    }
}

void SmallMessages::sum(std::size_t turn, ByteRange range, const Message& message) {
    for (std::size_t k = 0; k < inputs_.size(); ++k)
        inputs_[k] = slot(turn, static_cast<int>(k)) + range.begin;
    const std::array<void*, 1> output = {message.data + range.begin};
    sum_into(message.type, order_, inputs_, output, range.size() / size_of(message.type));
}

}  // namespace lockstep
