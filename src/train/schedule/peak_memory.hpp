// SPDX-License-Identifier: Apache-2.0
// The peak memory of tensors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include <c10/core/Allocator.h>
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

}  // namespace lockstep
