// SPDX-License-Identifier: Apache-2.0
/// @file
/// Support for code that is compiled for the host and for GPU kernels: a mark for its functions,
/// the grid of a kernel's threads, and the floats that each thread accesses at once.
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

/// Floats that a thread loads or stores by one access. Their address is a multiple of their size.
template <int width>
struct alignas(width * sizeof(float)) Floats {
    float at[width];  ///< in the order of addresses
};

/// Number of floats in the widest access of a thread: 16 bytes.
inline constexpr int widest_floats = 4;

/// Returns true if the address of each array allows the widest access. A null pointer counts as
/// aligned.
template <class... Arrays>
LOCKSTEP_HOST_DEVICE inline bool are_aligned(const Arrays*... arrays) {
    return (reinterpret_cast<std::uintptr_t>(arrays) | ...) % sizeof(Floats<widest_floats>) == 0;
}

/// Loads the floats that begin at `from`.
template <int width>
LOCKSTEP_HOST_DEVICE inline Floats<width> load_floats(const float* from) {
#if !defined(__CUDA_ARCH__)
    // A GPU would stop, too.
    if (width == widest_floats && !are_aligned(from)) __builtin_trap();
#endif
    return *reinterpret_cast<const Floats<width>*>(from);
}

/// Calls `work.template operator()<width>(i)` for the floats [i, i + width) of one thread. The grid
/// has `all` threads, which cover [0, count) once; `index` is that of this thread. Where arrays are
/// aligned, the width is widest_floats, except for up to three floats at the end. Elsewhere it
/// is 1.
template <class Work>
LOCKSTEP_HOST_DEVICE inline void for_own_floats(
    std::int64_t count, bool is_aligned, std::int64_t index, std::int64_t all, const Work& work) {
    const std::int64_t groups = is_aligned ? count / widest_floats : 0;
    for (std::int64_t i = index; i < groups; i += all)
        work.template operator()<widest_floats>(i * widest_floats);
    for (std::int64_t i = groups * widest_floats + index; i < count; i += all)
        work.template operator()<1>(i);
}

}  // namespace lockstep
