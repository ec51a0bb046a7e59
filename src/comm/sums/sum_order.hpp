// SPDX-License-Identifier: Apache-2.0
// The order of a sum, once for all that add: the CPU's loops, tile by tile, and a GPU's threads,
// float by float.
#pragma once

#include "lockstep/core/host_device.hpp"

#include <cstddef>

namespace lockstep {

/// More merges than any order of an int's number of inputs leaves pending at once.
inline constexpr int deepest_stack = 64;

/// The sum of load(0), load(1), ..., load(inputs - 1), of which there is one at least: after each,
/// the two topmost entries of a stack merge merges_after[k] times. The top of the stack stays in
/// registers; only what waits for a later sibling leaves.
template <class Value, class Load>
[[gnu::always_inline]] LOCKSTEP_HOST_DEVICE inline Value summed_in_order(const int* merges_after,
                                                                         std::size_t inputs,
                                                                         const Load& load) {
    Value below[deepest_stack];
    int height = 0;
    Value top = load(0);
    for (std::size_t k = 1; k < inputs; ++k) {
        int merges = merges_after[k];
        if (merges == 0) {
            below[height++] = top;
            top = load(k);
            continue;
        }
        top = top + load(k);
        while (--merges > 0) top = below[--height] + top;
    }
    return top;
}

}  // namespace lockstep
