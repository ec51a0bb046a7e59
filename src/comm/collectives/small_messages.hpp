// SPDX-License-Identifier: Apache-2.0
// Messages so short that meeting costs more than summing: every rank sums everything itself.
#pragma once

#include "collectives/byte_buffer.hpp"
#include "collectives/shared_meeting.hpp"

#include <cstddef>
#include <vector>

namespace lockstep {

/// Collectives of messages of at most most_bytes, with one meeting.
class SmallMessages {
  public:
    static constexpr std::size_t most_bytes = 8192;
    static std::size_t bytes_for(int ranks) {
        return 2 * static_cast<std::size_t>(ranks) * most_bytes;
    }

    /// `memory`: bytes_for(ranks) of a shared window. The meeting outlives this.
    SmallMessages(std::byte* memory, SharedMeeting& meeting);

    /// Leaves this rank's data where all see it, for the call with this turn.
    void share(std::size_t turn, const SharedCall& call, const Message& message);

    /// After all ranks have shared and met.
    void finish(std::size_t turn, const SharedCall& call, const Message& message);

  private:
    std::byte* slot(std::size_t turn, int rank) const {
        return memory_ + (turn * static_cast<std::size_t>(meeting_.ranks()) +
                          static_cast<std::size_t>(rank)) *
                             most_bytes;
    }
    ByteRange shared_by(int rank, const SharedCall& call) const;
    void sum(std::size_t turn, ByteRange range, const Message& message);

    std::byte* const memory_;
    SharedMeeting& meeting_;
    const std::vector<int> order_;
    std::vector<const void*> inputs_;
};

}  // namespace lockstep
