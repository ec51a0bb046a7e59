// SPDX-License-Identifier: Apache-2.0
// The same loops compiled for several instruction sets.
#pragma once

#include "lockstep/comm/data_type.hpp"

#include <cstddef>
#include <span>
#include <string_view>

namespace lockstep {

/// The arguments of sum_into(). Plain pointers: an inline function of the standard library that is
/// compiled here for AVX-512 could be the copy that the linker keeps for all.
struct SumTask {
    DataType type;
    const int* merges_after;
    const void* const* inputs;
    std::size_t input_count;
    void* const* outputs;
    std::size_t output_count;
    std::size_t count;
};

/// The arguments of swap_through().
struct SwapTask {
    const std::byte* in;
    std::byte* box;
    std::byte* out;
    std::size_t bytes;
};

namespace baseline {
void sum(const SumTask& task);
void swap_through(const SwapTask& task);
}  // namespace baseline
namespace avx2 {
void sum(const SumTask& task);
void swap_through(const SwapTask& task);
}  // namespace avx2
namespace avx512 {
void sum(const SumTask& task);
void swap_through(const SwapTask& task);
}  // namespace avx512

struct SumLoop {
    std::string_view instruction_set;
    void (*sum)(const SumTask& task);
    void (*swap_through)(const SwapTask& task);
};

/// Those that this processor can run, the fastest last.
std::span<const SumLoop> sum_loops();

}  // namespace lockstep
