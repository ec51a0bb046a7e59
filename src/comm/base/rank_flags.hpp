// SPDX-License-Identifier: Apache-2.0
// How far each rank of a node has come, in memory that all of them see.
#pragma once

#include "spin.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

/// A count for each rank that only grows, on a cache line of its own: nobody but its owner writes
/// it, and who waits can say for whom.
class RankFlags {
  public:
    static std::size_t bytes_for(int ranks) {
        return static_cast<std::size_t>(ranks) * sizeof(Line);
    }

    /// `memory`: bytes_for(ranks) zeros of a shared window. All ranks construct theirs before any
    /// waits.
    RankFlags(std::byte* memory, int rank, int ranks, Patience patience = Patience::little);

    /// One step further: what this rank wrote before is there for those who see it.
    /// Returns the new count.
    std::uint64_t raise();

    bool all_reached(std::uint64_t count) const;
    std::vector<int> missing(std::uint64_t count) const;  ///< who has not reached it; any thread

    /// Waits until every rank has reached `count`; false if that took longer than `limit_s`.
    bool wait(std::uint64_t count, double limit_s = no_deadline) const;

  private:
    struct alignas(64) Line {
        std::atomic<std::uint64_t> count;
    };
    static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "shared between processes");

    Line& line(int rank) const { return lines_[rank]; }
    bool has_reached(int rank, std::uint64_t count) const {
        return line(rank).count.load(std::memory_order_acquire) >= count;
    }

    Line* lines_;
    int rank_, ranks_;
    Patience patience_;
    std::uint64_t raised_ = 0;
};

}  // namespace lockstep
