// SPDX-License-Identifier: Apache-2.0
// The samples of each step from a position on, with the numbers of their rows.
#pragma once

#include "read_plan.hpp"

#include <cstdint>
#include <future>
#include <memory>
#include <vector>

namespace lockstep {

/// A step and the samples of this rank's rows, in their order.
struct StepSamples {
    Step step;
    std::vector<std::uint64_t> ids;
};

/// Walks the steps from a position, across epochs, without end. Holds the windows of the step. If
/// one window is a whole epoch, it computes the next epoch's on a separate thread. One thread. At
/// most 2^32 samples.
class SampleWalk {
  public:
    SampleWalk(std::vector<RowBlock> blocks, const StreamOptions& options, StreamPosition start);
    StepSamples next();

    /// Returns the rows of all windows that were permuted so far: the cost of finding a position.
    std::uint64_t rows_permuted() const { return rows_permuted_; }

    /// Returns the most bytes that a walk holds.
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

}  // namespace lockstep
