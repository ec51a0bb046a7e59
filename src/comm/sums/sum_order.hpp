// SPDX-License-Identifier: Apache-2.0
// The order of a sum, shared by the CPU's loops, tile by tile, and a GPU's threads, float by float.
#pragma once

#include "lockstep/core/host_device.hpp"

#include <cstddef>

namespace lockstep {

/// Upper bound of pending merges for any number of inputs that an int holds.
inline constexpr int deepest_stack = 64;

/// Returns the sum of load(0), load(1), ..., load(inputs - 1), with inputs >= 1: after each, the
/// two topmost entries of a stack merge merges_after[k] times. The top of the stack stays in
/// registers; only entries that wait for a later sibling leave them.
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
