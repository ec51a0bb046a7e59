// SPDX-License-Identifier: Apache-2.0
// Kernels by their host source.
#pragma once

#include "lockstep/core/host_device.hpp"

#include "simcuda/machine.hpp"
#include "simcuda/settings.hpp"

#include <cstdint>

namespace simcuda {

/// Turns a GPU's pointers in a launch into the host's.
template <class... Pointers>
void reach(Pointers&... pointers) {
    ((pointers = machine().memory.in_kernel(pointers)), ...);
}

/// Enqueues all threads of a grid. The last one comes first: no order between threads is promised.
template <class Thread>
void run_blocks(std::int64_t blocks, const Thread& thread, void* stream) {
    note_launch();
    stream_of(stream).enqueue([=] {
        for (std::int64_t block = blocks; block-- > 0;)
            for (int i = lockstep::threads_of_block; i-- > 0;) thread(block, i, blocks);
    });
}

/// One of `threads` threads of one of `blocks` blocks.
template <class Launch>
using KernelThread =
    void (*)(const Launch&, std::int64_t block, int thread, std::int64_t blocks, int threads);

/// Enqueues the whole grid for `elements`; the launch is copied, as a kernel's arguments are.
template <class Launch>
void run_kernel(const Launch& launch,
                std::int64_t elements,
                KernelThread<Launch> thread,
                void* stream) {
    run_blocks(
        lockstep::blocks_for(elements),
        [=](std::int64_t block, int i, std::int64_t blocks) {
            thread(launch, block, i, blocks, lockstep::threads_of_block);
        },
        stream);
}

}  // namespace simcuda
