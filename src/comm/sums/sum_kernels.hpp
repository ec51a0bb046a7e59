// SPDX-License-Identifier: Apache-2.0
// The loop behind every sum: many inputs, a fixed order, many outputs. It is compiled for several
// instruction sets.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace lockstep {

/// Sets outputs[j][i] to the sum of inputs[..][i] in `merges_after`'s order, for i in [0, count),
/// for every j. Outputs may be inputs. `merges_after` is as TreePlan::merges_after(). The
/// instruction set changes the speed, never a bit. Any alignment of a float is allowed; 64 bytes is
/// fastest.
void sum_into(std::span<const int> merges_after,
              std::span<const float* const> inputs,
              std::span<float* const> outputs,
              std::size_t count);

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
