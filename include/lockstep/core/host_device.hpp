// SPDX-License-Identifier: Apache-2.0
/// @file
/// Code that is one source for the host and for kernels: the mark of its functions, and the grid of
/// a kernel's threads.
#pragma once

#include <cstdint>

/// Before a function that nvcc compiles for both, and any other compiler for the host.
#if defined(__CUDACC__)
#define LOCKSTEP_HOST_DEVICE __host__ __device__
#else
#define LOCKSTEP_HOST_DEVICE
#endif

namespace lockstep {

/// Threads of each block.
inline constexpr int threads_of_block = 256;

/// The largest grid: beyond, each thread strides over several elements.
inline constexpr std::int64_t most_blocks_of_grid = 65536;

/// Blocks of a grid for so many elements, at least one.
inline std::int64_t blocks_for(std::int64_t elements) {
    const std::int64_t blocks = (elements + threads_of_block - 1) / threads_of_block;
    return blocks < 1 ? 1 : blocks > most_blocks_of_grid ? most_blocks_of_grid : blocks;
}

}  // namespace lockstep
