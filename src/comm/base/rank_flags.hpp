// SPDX-License-Identifier: Apache-2.0
// The progress of each rank of a node, in memory that all of them share.
#pragma once

#include "spin.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

/// A growing count for each rank, on a cache line of its own. Only its owner writes it, and a
/// waiting rank can name the ranks that it waits for.
class RankFlags {
  public:
    static std::size_t bytes_for(int ranks) {
        return static_cast<std::size_t>(ranks) * sizeof(Line);
    }

    /// `memory`: bytes_for(ranks) zeros of a shared window. All ranks construct theirs before any
    /// waits.
    RankFlags(std::byte* memory, int rank, int ranks, Patience patience = Patience::little);

    /// Increments this rank's count: ranks that see it also see what this rank wrote before.
    /// Returns the new count.
    std::uint64_t raise();

    bool all_reached(std::uint64_t count) const;
    std::vector<int> missing(
        std::uint64_t count) const;  ///< ranks that have not reached it; any thread

    /// Waits until every rank has reached `count`. Returns false if that took longer than
    /// `limit_s`.
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
