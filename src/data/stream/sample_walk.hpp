// SPDX-License-Identifier: Apache-2.0
// Which samples each step has: the steps of a position on, with the numbers of their rows.
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

}  // namespace lockstep
