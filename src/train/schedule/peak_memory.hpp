// SPDX-License-Identifier: Apache-2.0
// The peak memory of tensors, and memory that a GPU did not have.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>
#include <c10/util/ThreadLocalDebugInfo.h>

namespace lockstep {

/// Counts the bytes of this thread's tensors that are made during its lifetime. Not within another
/// profiler.
class PeakMemory {
  public:
    std::uint64_t bytes() const { return counter_->peak; }  ///< the most so far

  private:
    struct Counter : c10::MemoryReportingInfoBase {
        void reportMemoryUsage(
            void* place, std::int64_t bytes, std::size_t, std::size_t, c10::Device) override {
            if (bytes > 0) {
                sizes[place] = static_cast<std::uint64_t>(bytes);
                live += static_cast<std::uint64_t>(bytes);
                peak = std::max(peak, live);
            } else if (const auto freed = sizes.find(place); freed != sizes.end()) {
                live -= freed->second;
                sizes.erase(freed);
            }
        }
        bool memoryProfilingEnabled() const override { return true; }

        std::unordered_map<const void*, std::uint64_t> sizes;
        std::uint64_t live = 0, peak = 0;
    };

    const std::shared_ptr<Counter> counter_ = std::make_shared<Counter>();
    const c10::DebugInfoGuard guard_{c10::DebugInfoKind::PROFILER_STATE, counter_};
};

/// Finds requests for memory of `device` that failed during its lifetime although no operator did.
/// A convolution whose workspace gets no memory takes another kernel, which has other bits:
/// docs/decisions/0020-kernels-of-cudnn.md.
class FailedAllocations {
  public:
    explicit FailedAllocations(c10::Device device) : device_(device), before_(count()) {}

    bool any() const { return count() != before_; }

    /// Throws c10::OutOfMemoryError if there were any.
    void check_none() const {
        TORCH_CHECK_WITH(OutOfMemoryError,
                         !any(),
                         "a convolution got no memory for its workspace and took another kernel, "
                         "which has other bits");
    }

  private:
    std::int64_t count() const {
        if (device_.is_cpu()) return 0;
        return c10::getDeviceAllocator(device_.type())->getDeviceStats(device_.index()).num_ooms;
    }

    const c10::Device device_;
    const std::int64_t before_;
};

}  // namespace lockstep
