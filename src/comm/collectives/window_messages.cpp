// SPDX-License-Identifier: Apache-2.0
#include "collectives/window_messages.hpp"

#include "collectives/sum_kernels.hpp"

#include <algorithm>
#include <cstring>

namespace lockstep {

WindowMessages::WindowMessages(const LentWindows& windows, SharedMeeting& meeting)
    : windows_(windows),
      meeting_(meeting),
      order_(balanced_order(meeting.ranks())),
      stripes_(order_.size()) {}

void WindowMessages::run(const SharedCall& call) {
    const ByteRange own = byte_stripe(call.bytes, meeting_.rank(), meeting_.ranks());
    for (int rank = 0; rank < meeting_.ranks(); ++rank)
        stripes_[static_cast<std::size_t>(rank)] =
            windows_.address(rank, meeting_.call_of(rank)) + own.begin;
    const auto self = static_cast<std::size_t>(meeting_.rank());
    const std::size_t count = own.size() / size_of(call.type);
    switch (call.operation) {
        case SharedOperation::all_reduce:
            sum(call.type, stripes_, count);
            break;
        case SharedOperation::reduce_scatter:
            sum(call.type, std::span(stripes_).subspan(self, 1), count);
            break;
        case SharedOperation::all_gather:
            copy(stripes_[self], own.size());
            break;
        case SharedOperation::broadcast:
            copy(stripes_[static_cast<std::size_t>(call.root)], own.size());
            break;
        default:
            break;
    }
    meeting_.meet();
}

void WindowMessages::sum(DataType type, std::span<std::byte* const> outputs, std::size_t count) {
    inputs_.assign(stripes_.begin(), stripes_.end());
    outputs_.assign(outputs.begin(), outputs.end());
    sum_into(type, order_, inputs_, outputs_, count);
}

/// In pieces, so that what one rank gets is still in cache for the next.
void WindowMessages::copy(const std::byte* from, std::size_t bytes) {
    constexpr std::size_t piece = 16 << 10;
    for (std::size_t at = 0; at < bytes; at += piece)
        for (std::byte* to : stripes_)
            if (to != from) std::memcpy(to + at, from + at, std::min(piece, bytes - at));
}

}  // namespace lockstep
