// SPDX-License-Identifier: Apache-2.0
// The same loop compiled for several instruction sets.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace lockstep {

/// The arguments of sum_into(). They are plain pointers: an inline function of the standard library
/// that is compiled here for AVX-512 could become the linker's only copy.
struct SumTask {
    const int* merges_after;
    const float* const* inputs;
    std::size_t input_count;
    float* const* outputs;
    std::size_t output_count;
    std::size_t count;
};

namespace baseline {
void sum(const SumTask& task);
}  // namespace baseline
namespace avx2 {
void sum(const SumTask& task);
}  // namespace avx2
namespace avx512 {
void sum(const SumTask& task);
}  // namespace avx512

struct SumLoop {
    std::string_view instruction_set;
    void (*sum)(const SumTask& task);
};

/// Returns the loops that this processor can run, the fastest last.
std::span<const SumLoop> sum_loops();

}  // namespace lockstep
