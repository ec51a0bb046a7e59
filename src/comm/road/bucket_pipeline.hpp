// SPDX-License-Identifier: Apache-2.0
// The buckets of one step on their way through an Exchange, always in index order.
#pragma once

#include "lockstep/comm/exchange.hpp"
#include "lockstep/comm/reducer.hpp"

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep {

/// One step is: restart, launch_before (growing), finish; then sum(). The step's thread moves this
/// pipeline on.
class BucketPipeline {
  public:
    /// `exchange` must outlive the pipeline.
    BucketPipeline(Exchange& exchange, std::size_t buckets) : exchange_(exchange), sums_(buckets) {}
    virtual ~BucketPipeline() = default;
    BucketPipeline(const BucketPipeline&) = delete;
    BucketPipeline& operator=(const BucketPipeline&) = delete;

    /// Begins a step. The buckets of the last one are all summed.
    virtual void restart();

    /// Announces that buckets up to `end` are complete in this rank's slots.
    virtual void launch_before(std::size_t end);

    /// Waits until all launched buckets are summed. Throws errors that occurred on the way.
    virtual void finish() { reduce(Wait::yes); }

    const float* sum(std::size_t bucket) const { return sums_[bucket]; }
    double take_launch_s() { return std::exchange(launch_s_, 0.0); }
    double take_busy_s() { return std::exchange(busy_s_, 0.0); }

  protected:
    void arrive_before(std::size_t end);

    /// Sums what has arrived. Returns true if nothing is left.
    bool reduce(Wait wait);

  private:
    bool is_idle() const { return summed_ == arrived_; }

    Exchange& exchange_;
    std::vector<const float*> sums_;
    std::size_t arrived_ = 0, summed_ = 0;
    double busy_since_s_ = 0, busy_s_ = 0;
    double launch_s_ = 0;  ///< time of the step's thread in launch_before()
};

/// Makes a pipeline. Errors: E642 if the communication thread cannot stay on its CPU.
std::unique_ptr<BucketPipeline> make_pipeline(Exchange& exchange,
                                              std::size_t buckets,
                                              const ProgressSettings& progress);

}  // namespace lockstep
