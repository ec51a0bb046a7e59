// SPDX-License-Identifier: Apache-2.0
/// @file
/// Support for code that is compiled for the host and for GPU kernels: a mark for its functions and
/// the grid of a kernel's threads.
#pragma once

#include <cstdint>

/// Marks a function that nvcc compiles for host and device, and other compilers for the host only.
#if defined(__CUDACC__)
#define LOCKSTEP_HOST_DEVICE __host__ __device__
#else
#define LOCKSTEP_HOST_DEVICE
#endif

namespace lockstep {

/// Number of threads of each block.
inline constexpr int threads_of_block = 256;

/// Largest number of blocks: beyond it, each thread handles several elements.
inline constexpr std::int64_t most_blocks_of_grid = 65536;

/// Returns the number of blocks for `elements`, at least one.
inline std::int64_t blocks_for(std::int64_t elements) {
    const std::int64_t blocks = (elements + threads_of_block - 1) / threads_of_block;
    return blocks < 1 ? 1 : blocks > most_blocks_of_grid ? most_blocks_of_grid : blocks;
}

}  // namespace lockstep
