// SPDX-License-Identifier: Apache-2.0
// The Reducer's view of whoever moves its buckets.
#pragma once

#include "lockstep/comm/exchange.hpp"
#include "lockstep/comm/progress.hpp"

#include <cstddef>
#include <memory>

namespace lockstep {

/// One step is: restart, launch_before (growing), finish; then sum().
class BucketProgress {
  public:
    virtual ~BucketProgress() = default;
    virtual void restart() = 0;

    /// Buckets up to `end` are complete in this rank's slots.
    virtual void launch_before(std::size_t end) = 0;

    /// Waits until all that was launched is summed. Throws what went wrong on the way.
    virtual void finish() = 0;

    virtual const float* sum(std::size_t bucket) const = 0;
    virtual double take_busy_s() = 0;
};

/// Errors: E642 if the thread cannot stay on its CPU.
std::unique_ptr<BucketProgress> make_progress(Exchange& exchange,
                                              std::size_t buckets,
                                              const ProgressSettings& progress);
std::unique_ptr<BucketProgress> make_comm_thread(Exchange& exchange,
                                                 std::size_t buckets,
                                                 std::optional<int> cpu);

}  // namespace lockstep
