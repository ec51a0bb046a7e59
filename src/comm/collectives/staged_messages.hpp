// SPDX-License-Identifier: Apache-2.0
// Buffers that only their own rank sees: they go through shared memory small enough for the cache.
#pragma once

#include "collectives/byte_buffer.hpp"
#include "collectives/shared_meeting.hpp"

#include <cstddef>
#include <vector>

namespace lockstep {

/// Each rank has boxes, one for each owner of a stripe. A message goes through them in pieces: a
/// rank puts what an owner needs into its box, the owner sums and leaves the sum there, and the
/// rank takes it out while it puts the next piece in. One meeting a piece.
class StagedMessages {
  public:
    static std::size_t bytes_for(int ranks);

    /// `memory`: bytes_for(ranks) of a shared window. The meeting outlives this.
    StagedMessages(std::byte* memory, SharedMeeting& meeting);

    /// The first piece; nobody needs to have come for it.
    void share(const SharedCall& call, const Message& message);

    /// Collective. Everything else, after all ranks have shared and met.
    void finish(const SharedCall& call, const Message& message);

  private:
    static std::size_t piece_bytes(int ranks);

    void step(std::size_t number, const SharedCall& call, const Message& message);
    void pass_on(std::size_t number, bool takes_out, const Message& message);
    void sum(std::size_t piece, const Message& message);
    void offer(std::size_t piece, const Message& message);
    void take(std::size_t piece, const Message& message);
    void send(std::size_t piece, const Message& message);
    void receive(std::size_t piece, int root, const Message& message);

    std::size_t pieces_of(const Message& message) const;
    ByteRange range_of(int owner, std::size_t piece, const Message& message) const;
    std::byte* box(int rank, std::size_t piece, int owner) const;

    std::byte* const memory_;
    SharedMeeting& meeting_;
    const int rank_, ranks_;
    const std::size_t piece_bytes_;
    std::size_t pieces_before_ = 0;  ///< in earlier calls, so that boxes alternate across calls too
    const std::vector<int> order_;
    std::vector<const void*> inputs_;
    std::vector<void*> outputs_;
};

}  // namespace lockstep
