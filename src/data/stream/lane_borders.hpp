// SPDX-License-Identifier: Apache-2.0
// Reads blocks on borders of lanes once per epoch: the reader of one keeps the rows that the other
// lane needs.
#pragma once

#include "lockstep/data/dataset_index.hpp"

#include "read_plan.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace lockstep {

/// Rows that the reader of one window keeps for another window. Any thread settles them, once.
class KeptRows {
  public:
    KeptRows(const LaneRange& rows, std::shared_ptr<std::atomic<std::uint64_t>> room)
        : rows_(rows), room_(std::move(room)) {}
    ~KeptRows() { *room_ += bytes_; }
    KeptRows& operator=(KeptRows&&) = delete;

    const LaneRange& rows() const { return rows_; }
    std::span<const std::span<std::byte>> fields() const { return fields_; }

    /// Takes memory for the rows of all fields from the available room, until the end. Returns
    /// false if that is too little.
    bool take_room(const DatasetIndex& index);

    /// Notes that all rows are there, or never will be: the first call counts.
    void settle(bool are_whole);

    bool are_settled() const { return state_ != State::awaited; }

    /// Waits for that. Returns true if they are there.
    bool are_whole() const;

    /// Copies to rooms of the same fields.
    void copy_to(std::span<const std::span<std::byte>> fields) const;

  private:
    enum class State { awaited, whole, failed };

    LaneRange rows_;
    std::shared_ptr<std::atomic<std::uint64_t>> room_;
    std::uint64_t bytes_ = 0;
    std::unique_ptr<std::byte[]> memory_;
    std::vector<std::span<std::byte>> fields_;
    std::atomic<State> state_ = State::awaited;
};

/// The rows that a window shares with the lanes beside its own.
struct SharedRows {
    std::vector<std::shared_ptr<KeptRows>> keeps;  ///< rows of others, to be read with this window
    std::vector<std::shared_ptr<KeptRows>> finds;  ///< its own, read with another window
};

/// Returns the part of a window that is still to be read: the rows that it finds are at its ends.
LaneRange unkept_rows(LaneRange window, const SharedRows& shared);

/// Decides which window keeps rows for which other. Call it for windows in the order of loading, so
/// that a thread that waits for rows waits for one that has begun before it. One thread at a time.
class LaneBorders {
  public:
    /// For a reader of `lanes` from `start` on, with `bytes` of memory: without room a window reads
    /// all its rows itself.
    LaneBorders(std::set<int> lanes, StreamPosition start, std::uint64_t bytes);

    SharedRows of(const EpochWindow& window);

  private:
    void share(const EpochWindow& window, int border, SharedRows& shared);

    /// The state of a border, from the first of its two windows on.
    struct Met {
        std::shared_ptr<const EpochOrder> order;
        std::shared_ptr<KeptRows> rows;  ///< kept until the second window, if there will be one
    };

    std::set<int> lanes_;
    StreamPosition start_;
    std::shared_ptr<std::atomic<std::uint64_t>> room_;
    std::vector<Met> met_;  // by the lane after the border
};

/// Returns the most bytes that are useful to LaneBorders: none if borders are few among the blocks.
std::uint64_t border_bytes(const DatasetIndex& index, const EpochOrder& order, std::size_t lanes);

}  // namespace lockstep
