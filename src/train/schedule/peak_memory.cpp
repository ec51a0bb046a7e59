// SPDX-License-Identifier: Apache-2.0
#include "schedule/peak_memory.hpp"

#include <algorithm>
#include <unordered_map>

#include <c10/core/Allocator.h>

namespace lockstep {

class PeakMemory::Counter : public c10::MemoryReportingInfoBase {
  public:
    void reportMemoryUsage(
        void* place, std::int64_t bytes, std::size_t, std::size_t, c10::Device) override {
        if (bytes > 0) {
            sizes_[place] = static_cast<std::uint64_t>(bytes);
            live_ += static_cast<std::uint64_t>(bytes);
            peak_ = std::max(peak_, live_);
        } else if (const auto freed = sizes_.find(place); freed != sizes_.end()) {
            live_ -= freed->second;
            sizes_.erase(freed);
        }
    }
    bool memoryProfilingEnabled() const override { return true; }
    std::uint64_t peak() const { return peak_; }

  private:
    std::unordered_map<const void*, std::uint64_t> sizes_;
    std::uint64_t live_ = 0, peak_ = 0;
};

PeakMemory::PeakMemory()
    : counter_(std::make_shared<Counter>()), guard_(c10::DebugInfoKind::PROFILER_STATE, counter_) {}

PeakMemory::~PeakMemory() = default;

std::uint64_t PeakMemory::bytes() const {
    return counter_->peak();
}

}  // namespace lockstep
