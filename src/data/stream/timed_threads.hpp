// SPDX-License-Identifier: Apache-2.0
// Threads that begin at the same moment, and how long they take together.
#pragma once

#include "memory.hpp"

#include <cstddef>
#include <functional>
#include <span>

namespace lockstep {

/// Calls prepare(thread) on each of `threads` threads; when all are done, calls what they returned
/// and returns the seconds from the first that begins to the last that ends. Each has a processor
/// of its own, where there are enough. The first exception of any comes out of here.
double timed_threads(int threads, const std::function<std::function<void()>(int)>& prepare);

/// Buffers that are used over and over, as a reader with a fixed amount of memory uses its own. One
/// thread.
class Ring {
  public:
    explicit Ring(std::span<std::byte> memory) : memory_(memory) {}

    /// The next `bytes`, at most as many as there are.
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
