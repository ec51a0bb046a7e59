// SPDX-License-Identifier: Apache-2.0
// Threads that begin at the same moment, and their common duration.
#pragma once

#include "stream/memory.hpp"

#include <cstddef>
#include <functional>
#include <span>

namespace lockstep {

/// Calls prepare(thread) on each of `threads` threads. When all are done, it calls the returned
/// functions and returns the seconds from the first begin to the last end. Each thread has its own
/// processor, if there are enough. Throws the first exception of any thread.
double timed_threads(int threads, const std::function<std::function<void()>(int)>& prepare);

/// Buffers that are used repeatedly, like those of a reader with a fixed amount of memory. One
/// thread.
class Ring {
  public:
    explicit Ring(std::span<std::byte> memory) : memory_(memory) {}

    /// Returns the next `bytes`, at most as many as there are.
    std::span<std::byte> next(std::size_t bytes) {
        if (at_ + bytes > memory_.size()) at_ = 0;
        const std::span<std::byte> place = memory_.subspan(at_, bytes);
        at_ += aligned(bytes);
        return place;
    }

  private:
    std::span<std::byte> memory_;
    std::size_t at_ = 0;
};

}  // namespace lockstep
