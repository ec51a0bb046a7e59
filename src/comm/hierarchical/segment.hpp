// SPDX-License-Identifier: Apache-2.0
// A message in parts that every node cuts alike, as the ranks of one node hold them.
#pragma once

#include "collectives/byte_buffer.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace lockstep {

/// What lies in both; empty where they do not meet.
inline ByteRange common_part(ByteRange a, ByteRange b) {
    const std::size_t begin = std::max(a.begin, b.begin);
    return {begin, std::max(begin, std::min(a.end, b.end))};
}

struct Segment {
    static constexpr std::size_t most_bytes = 2 << 20;

    /// Stripes of few bytes cost more messages than they save time.
    static constexpr std::size_t most_bytes_of_one_stripe = 16 << 10;

    Message message;                  ///< `data` is of no use here
    ByteRange range;                  ///< of the message
    std::vector<std::byte*> buffers;  ///< where `range` begins, by local rank

    std::size_t bytes() const { return range.size(); }

    /// The part of the message, if any, that local rank `rail` of `rails` looks after.
    ByteRange stripe(int rail, int rails) const {
        const int used = bytes() <= most_bytes_of_one_stripe ? 1 : rails;
        if (rail >= used) return {range.end, range.end};
        const ByteRange stripe = byte_stripe(bytes(), rail, used);
        return {range.begin + stripe.begin, range.begin + stripe.end};
    }

    /// Byte `at` of the message in the buffer of `local_rank`.
    std::byte* address(int local_rank, std::size_t at) const {
        return buffers[static_cast<std::size_t>(local_rank)] + (at - range.begin);
    }
};

}  // namespace lockstep
