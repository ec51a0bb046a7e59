// SPDX-License-Identifier: Apache-2.0
// The windows that a rank reads, in the order of first use: pure functions of the options.
#pragma once

#include "lockstep/data/batch_stream.hpp"
#include "lockstep/data/dataset_index.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace lockstep {

struct EpochWindow {
    std::shared_ptr<const EpochOrder> order;
    LaneRange range;
    bool holds(std::uint64_t epoch, std::uint64_t position) const {
        return order && order->epoch() == epoch && position >= range.begin && position < range.end;
    }
};

/// Returns the options of a stream on which the order depends.
OrderSpec order_spec(const StreamOptions& options);

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
    const EpochOrder& enter_epoch();

    std::vector<RowBlock> blocks_;
    StreamOptions options_;
    StreamPosition position_;
    std::shared_ptr<const EpochOrder> order_;  // made when a step of its epoch is asked for
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
    void add_windows_of(const Step& step);

    StepWalk steps_;
    Step step_;                       // whose windows come next
    std::uint64_t epoch_;             // of the last step with rows of this rank
    std::vector<EpochWindow> last_;   // by lane
    std::deque<EpochWindow> queued_;  // of the steps before
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

/// A step and the samples of this rank's rows, in their order.
struct StepSamples {
    Step step;
    std::vector<std::uint64_t> ids;
};

/// Walks the steps from a position, across epochs, for ever. Holds the windows that the step is in,
/// and works out the next epoch's on a thread of its own where one window is a whole epoch. One
/// thread. At most 2^32 samples.
class SampleWalk {
  public:
    SampleWalk(std::vector<RowBlock> blocks, const StreamOptions& options, StreamPosition start);
    StepSamples next();

    /// Rows of all windows that were permuted so far: what finding a position costs.
    std::uint64_t rows_permuted() const { return rows_permuted_; }

    /// Bytes that a walk holds at most.
    static std::uint64_t memory_bytes(const std::vector<RowBlock>& blocks,
                                      const StreamOptions& options);

  private:
    struct Window {
        EpochWindow at;
        std::vector<std::uint32_t> samples;
    };

    const Window& window_at(const Step& step, int lane, std::uint64_t position);
    Window make_window(const Step& step, int lane, std::uint64_t position);
    void look_ahead(std::uint64_t epoch);

    std::vector<RowBlock> blocks_;
    OrderSpec spec_;
    StepWalk steps_;
    std::vector<Window> lanes_;
    std::future<Window> ahead_;  // the only window of the next epoch
    std::uint64_t rows_permuted_ = 0;
};

/// How often each byte of `field` is expanded in an epoch of the order 'lanes': a chunk is, once
/// for each of the order's blocks that has rows of it. So it is with a block of two lanes, too,
/// where one rank reads both and has memory for what the second needs.
double times_expanded(const DatasetIndex& index, std::size_t field);

/// One line for each field whose chunks cut samples: how often that is, and what packing would
/// save.
std::vector<std::string> cut_costs(const DatasetIndex& index);

}  // namespace lockstep
