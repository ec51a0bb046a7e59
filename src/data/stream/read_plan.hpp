// SPDX-License-Identifier: Apache-2.0
// The windows that a rank reads, in the order of first use: pure functions of the options.
#pragma once

#include "lockstep/data/batch_stream.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <vector>

namespace lockstep {

/// A window of one epoch.
struct EpochWindow {
    std::shared_ptr<const EpochOrder> order;
    std::uint64_t epoch = 0;
    LaneRange range;
    bool holds(std::uint64_t in_epoch, std::uint64_t position) const {
        return order && epoch == in_epoch && position >= range.begin && position < range.end;
    }
};

/// Returns the options of a stream on which the order depends.
OrderSpec order_spec(const StreamOptions& options);

/// The orders of epochs, made when an epoch begins and kept while they are used.
class OrderCache {
  public:
    OrderCache(std::vector<RowBlock> blocks, const StreamOptions& options);
    std::shared_ptr<const EpochOrder> of_epoch(std::uint64_t epoch);

  private:
    std::vector<RowBlock> blocks_;
    OrderSpec spec_;
    std::uint64_t epoch_ = 0;
    std::shared_ptr<const EpochOrder> order_;
};

/// One step of the job as this rank sees it.
struct Step {
    StreamPosition position, next;
    std::uint64_t samples = 0;     ///< over all ranks
    std::uint64_t rows = 0;        ///< rows of this rank
    std::vector<LaneRange> slice;  ///< this rank's, in the order of its rows
    std::shared_ptr<const EpochOrder> order;
};

/// Walks the steps from a position, across epochs, without end.
class StepWalk {
  public:
    StepWalk(std::vector<RowBlock> blocks, const StreamOptions& options, StreamPosition start);
    Step next();

  private:
    StreamOptions options_;
    OrderCache orders_;
    StreamPosition position_;
};

/// Walks the windows that the steps' slices touch, each when it is first needed and once for as
/// long as its lane stays in it.
class WindowWalk {
  public:
    WindowWalk(std::vector<RowBlock> blocks, const StreamOptions& options, StreamPosition start);

    /// Returns nothing if this rank never has a sample to compute.
    std::optional<EpochWindow> next();

    std::size_t lanes() const { return last_.size(); }

  private:
    bool advance();
    void begin_part(std::size_t part);

    StepWalk steps_;
    Step step_;
    std::size_t part_ = 0;           // part of the step's slice
    std::uint64_t reached_ = 0;      // lane position within that part
    std::vector<EpochWindow> last_;  // by lane
};

/// Returns the lanes on which this rank may hold a window.
std::set<int> lanes_held(const std::vector<RowBlock>& blocks,
                         const StreamOptions& options,
                         StreamPosition start);

/// Returns the largest number of rows of this rank in a step.
std::uint64_t most_rows(const StreamOptions& options, std::uint64_t samples);

/// Returns `position`, or the begin of the next epoch if no step of this one begins there. Errors:
/// E106 if none begins anywhere, E306 beyond an epoch's end.
StreamPosition normalized(StreamPosition position,
                          const StreamOptions& options,
                          std::uint64_t samples);

}  // namespace lockstep
