// SPDX-License-Identifier: Apache-2.0
// The sum of a stripe's partials in GPU memory, as plain data and as the work of each thread of the
// kernel; tests also run it on the host. Nothing is contracted (-ffp-contract=off, nvcc
// --fmad=false) and the order is that of the CPU's loops: both give tree_sum()'s bits.
#pragma once

#include "lockstep/core/host_device.hpp"

#include "sums/sum_order.hpp"

#include <cstddef>
#include <cstdint>

namespace lockstep {

/// Computes out[i] = the sum of all partials' element i, for i in [0, count). Partials are numbered
/// as in TreePlan::partials(). Those of this rank, [own_first, own_first + own_count), are in its
/// slots; the others are contiguous where they were received. `out` may be the first of its own.
/// Pointers are in the memory of the executing device, borrowed until it is done.
struct TreeSumLaunch {
    const float* own = nullptr;         ///< this rank's first partial
    std::int64_t own_pitch = 0;         ///< floats from one to the next
    const float* received = nullptr;    ///< the first of the others
    std::int64_t received_pitch = 0;    ///< floats from one to the next
    const int* merges_after = nullptr;  ///< TreePlan::merges_after()
    std::int32_t own_first = 0, own_count = 0;
    std::int32_t partials = 0;  ///< number of partials, at least one
    float* out = nullptr;
    std::int64_t count = 0;  ///< floats of the stripe
};

/// A grid of `blocks` x `threads` strides over the elements.
LOCKSTEP_HOST_DEVICE inline void tree_sum_thread(
    const TreeSumLaunch& launch, std::int64_t block, int thread, std::int64_t blocks, int threads) {
    for (std::int64_t i = block * threads + thread; i < launch.count; i += blocks * threads) {
        const auto element = [&](std::size_t partial) {
            const auto k = static_cast<std::int64_t>(partial);
            const std::int64_t behind = k - launch.own_first;
            if (behind < 0) return launch.received[k * launch.received_pitch + i];
            if (behind < launch.own_count) return launch.own[behind * launch.own_pitch + i];
            return launch.received[(k - launch.own_count) * launch.received_pitch + i];
        };
        launch.out[i] = summed_in_order<float>(
            launch.merges_after, static_cast<std::size_t>(launch.partials), element);
    }
}

}  // namespace lockstep
