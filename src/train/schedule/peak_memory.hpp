// SPDX-License-Identifier: Apache-2.0
// The peak memory of tensors.
#pragma once

#include <cstdint>
#include <memory>

#include <c10/util/ThreadLocalDebugInfo.h>

namespace lockstep {

/// Counts the bytes of this thread's tensors that are made during its lifetime. Not within another
/// profiler.
class PeakMemory {
  public:
    PeakMemory();
    ~PeakMemory();
    PeakMemory(const PeakMemory&) = delete;
    PeakMemory& operator=(const PeakMemory&) = delete;

    std::uint64_t bytes() const;  ///< the most so far

  private:
    class Counter;
    std::shared_ptr<Counter> counter_;
    c10::DebugInfoGuard guard_;
};

}  // namespace lockstep
