// SPDX-License-Identifier: Apache-2.0
// Blocks on borders of lanes are read once an epoch: who reads one keeps what the other lane needs.
#pragma once

#include "lockstep/data/dataset_index.hpp"

#include "read_plan.hpp"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace lockstep {

/// Rows that the reader of one window keeps for another's. Settled once, by whichever thread.
class KeptRows {
  public:
    KeptRows(const LaneRange& rows, std::shared_ptr<std::atomic<std::uint64_t>> room)
        : rows_(rows), room_(std::move(room)) {}
    ~KeptRows() { *room_ += bytes_; }
    KeptRows(const KeptRows&) = delete;
    KeptRows& operator=(const KeptRows&) = delete;

    const LaneRange& rows() const { return rows_; }
    std::span<const std::span<std::byte>> fields() const { return fields_; }

    /// Takes memory for the rows of all fields from the room there is, until the end; false if that
    /// is too little.
    bool take_room(const DatasetIndex& index);

    /// They are all there, or never will be: the first call counts.
    void settle(bool are_whole);

    bool are_settled();

    /// Waits for that. Whether they are there.
    bool are_whole();

    /// To rooms of the same fields.
    void copy_to(std::span<const std::span<std::byte>> fields) const;

  private:
    enum class State { awaited, whole, failed };

    LaneRange rows_;
    std::shared_ptr<std::atomic<std::uint64_t>> room_;
    std::uint64_t bytes_ = 0;
    std::unique_ptr<std::byte[]> memory_;
    std::vector<std::span<std::byte>> fields_;
    std::mutex mutex_;
    std::condition_variable settled_;
    State state_ = State::awaited;
};

/// What a window has in common with the lanes beside its own.
struct SharedRows {
    std::vector<std::shared_ptr<KeptRows>> keeps;  ///< of others, to be read with this window
    std::vector<std::shared_ptr<KeptRows>> finds;  ///< its own, read with another window

    /// Whether all that it finds is settled.
    bool is_findable() const;
};

/// Of a window, what is still to be read: the rows that it finds lie at its ends.
LaneRange unkept_rows(LaneRange window, const SharedRows& shared);

/// Hands out who keeps what for whom. Windows must be asked about in the order in which they are
/// loaded, so that whoever waits for rows waits for a thread that has begun before it. One thread
/// at a time.
class LaneBorders {
  public:
    /// For a reader of `lanes` from `start` on, with `bytes` of memory: without room a window reads
    /// for itself.
    LaneBorders(std::set<int> lanes, StreamPosition start, std::uint64_t bytes);

    SharedRows of(const EpochWindow& window);

  private:
    void share(const EpochWindow& window, int border, SharedRows& shared);

    /// Of a border, from the first of its two windows on.
    struct Met {
        std::shared_ptr<const EpochOrder> order;
        std::shared_ptr<KeptRows> rows;  ///< until the second, if there will be one
    };

    std::set<int> lanes_;
    StreamPosition start_;
    std::shared_ptr<std::atomic<std::uint64_t>> room_;
    std::vector<Met> met_;  // by the lane behind the border
};

/// Most bytes that are useful to LaneBorders: none where borders are few among the blocks.
std::uint64_t border_bytes(const DatasetIndex& index, const EpochOrder& order, std::size_t lanes);

}  // namespace lockstep
