// SPDX-License-Identifier: Apache-2.0
// Buffers that only their own rank sees: they go through shared memory small enough for the cache.
#pragma once

#include "collectives/byte_buffer.hpp"
#include "collectives/shared_meeting.hpp"

#include <cstddef>
#include <vector>

namespace lockstep {

/// A message goes in pieces through three stages that overlap: what others need is copied to where
/// they see it, each rank sums its stripe, and the sums of others are copied back. One meeting for
/// each piece.
class StagedMessages {
  public:
    static std::size_t bytes_for(int ranks) {
        return rank_bytes(ranks) * static_cast<std::size_t>(ranks);
    }

    /// `memory`: bytes_for(ranks) of a shared window. The meeting outlives this.
    StagedMessages(std::byte* memory, SharedMeeting& meeting);

    /// Collective. After begin(), wherever the buffers are.
    void run(const SharedCall& call, const Message& message);

  private:
    using Stage = void (StagedMessages::*)(const SharedCall&, const Message&, std::size_t piece);

    static std::size_t piece_bytes(int ranks);
    static std::size_t rank_bytes(int ranks);
    static std::vector<Stage> stages_of(SharedOperation operation);

    void share(const SharedCall& call, const Message& message, std::size_t piece);
    void sum(const SharedCall& call, const Message& message, std::size_t piece);
    void offer(const SharedCall& call, const Message& message, std::size_t piece);
    void fetch(const SharedCall& call, const Message& message, std::size_t piece);
    void send(const SharedCall& call, const Message& message, std::size_t piece);
    void receive(const SharedCall& call, const Message& message, std::size_t piece);

    ByteRange range_of(int stripe, const Message& message, std::size_t piece) const;
    std::byte* box(int rank, std::size_t piece, int index) const;
    /// What `rank` has of the stripe of `owner`.
    std::byte* part(int rank, std::size_t piece, int owner) const {
        return box(rank, piece, owner);
    }
    std::byte* result(int rank, std::size_t piece) const { return box(rank, piece, ranks_); }

    std::byte* const memory_;
    SharedMeeting& meeting_;
    const int rank_, ranks_;
    const std::size_t piece_bytes_;
    std::size_t pieces_before_ = 0;  ///< in calls before this one, so that boxes always alternate
    const std::vector<int> order_;
    std::vector<const void*> inputs_;
    std::vector<void*> outputs_;
};

}  // namespace lockstep
