// SPDX-License-Identifier: Apache-2.0
// Memory lent to the ranks of a node, each of which can find its peers' buffers in it.
#pragma once

#include "lockstep/comm/shared_window.hpp"

#include "collectives/byte_buffer.hpp"
#include "collectives/shared_meeting.hpp"

#include <cstddef>
#include <deque>

namespace lockstep {

/// One window for each lend(), cut into equal parts, one for each rank.
class LentWindows {
  public:
    explicit LentWindows(const Communicator& ranks) : ranks_(ranks) {}

    /// Collective. This rank's part of a new window: `bytes` zeros at a page boundary, touched by
    /// this rank first. Errors: E632.
    std::byte* lend(std::size_t bytes);

    /// Fills in where the buffer is, if it was lent.
    void locate(const Message& message, SharedCall& call) const;

    /// Where the buffer of `rank` is, which was located in its call.
    std::byte* address(int rank, const SharedCall& call) const {
        const Lent& lent = lent_[call.window];
        return lent.window.data() + lent.part_bytes * static_cast<std::size_t>(rank) + call.offset;
    }

  private:
    struct Lent {
        Lent(const Communicator& ranks, std::size_t part)
            : part_bytes(part),
              window(ranks, part * static_cast<std::size_t>(ranks.size())),
              mine(window.data() + part * static_cast<std::size_t>(ranks.rank())) {}

        std::size_t part_bytes;
        SharedWindow window;
        std::byte* mine;
    };

    const Communicator ranks_;
    std::deque<Lent> lent_;
};

}  // namespace lockstep
