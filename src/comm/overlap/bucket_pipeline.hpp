// SPDX-License-Identifier: Apache-2.0
// The buckets of one step on their way through an Exchange, always in index order.
#pragma once

#include "lockstep/comm/exchange.hpp"

#include <cstddef>
#include <utility>
#include <vector>

namespace lockstep {

/// One thread at a time.
class BucketPipeline {
  public:
    /// `exchange` outlives the pipeline.
    BucketPipeline(Exchange& exchange, std::size_t buckets) : exchange_(exchange), sums_(buckets) {}

    /// Begins a step. The buckets of the last one are all summed.
    void restart();

    /// Buckets up to `end` are complete in this rank's slots.
    void arrive_before(std::size_t end);

    /// Sums what has arrived. Returns whether nothing is left.
    bool reduce(Wait wait);

    bool is_idle() const { return summed_ == arrived_; }
    const float* sum(std::size_t bucket) const { return sums_[bucket]; }
    double take_busy_s() { return std::exchange(busy_s_, 0.0); }

  private:
    Exchange& exchange_;
    std::vector<const float*> sums_;
    std::size_t arrived_ = 0, summed_ = 0;
    double busy_since_s_ = 0, busy_s_ = 0;
};

}  // namespace lockstep
