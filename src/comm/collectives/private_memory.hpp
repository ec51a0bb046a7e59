// SPDX-License-Identifier: Apache-2.0
// What lend() lends where an algorithm has no window.
#pragma once

#include "base/aligned_floats.hpp"

#include <cstddef>
#include <vector>

namespace lockstep {

/// Owns everything that it lent.
class PrivateMemory {
  public:
    /// `bytes` zeros at a page boundary.
    std::byte* lend(std::size_t bytes) {
        lent_.push_back(make_aligned_floats(whole_pages(bytes) / sizeof(float)));
        return reinterpret_cast<std::byte*>(lent_.back().get());
    }

  private:
    std::vector<AlignedFloats> lent_;
};

}  // namespace lockstep
