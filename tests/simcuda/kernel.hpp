// SPDX-License-Identifier: Apache-2.0
// Kernels by their host source.
#pragma once

#include "lockstep/core/host_device.hpp"

#include "simcuda/cuda_table.hpp"
#include "simcuda/settings.hpp"

#include <cstdint>

#include <unistd.h>

namespace simcuda {

/// Turns a GPU's pointers in a launch into the host's.
template <class... Pointers>
void reach(Pointers&... pointers) {
    ((pointers = machine().memory.in_kernel(pointers)), ...);
}

/// Enqueues the whole grid for `elements`; the launch is copied, as a kernel's arguments are. The
/// last thread comes first: no order between threads is promised.
template <class Launch>
void run_kernel(const Launch& launch,
                std::int64_t elements,
                void (*thread)(const Launch&, std::int64_t, int, std::int64_t, int),
                void* stream) {
    stream_of(stream).enqueue([=, stalls = is_stalled_kernel()] {
        while (stalls) ::pause();
        const std::int64_t blocks = lockstep::blocks_for(elements);
        for (std::int64_t block = blocks; block-- > 0;)
            for (int i = lockstep::threads_of_block; i-- > 0;)
                thread(launch, block, i, blocks, lockstep::threads_of_block);
    });
}

}  // namespace simcuda
