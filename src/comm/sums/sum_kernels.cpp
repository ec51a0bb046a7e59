// SPDX-License-Identifier: Apache-2.0
#include "sum_kernels.hpp"

#include "lockstep/core/error.hpp"

#include "sum_order.hpp"

#include <array>

namespace lockstep {
namespace {

/// Returns how many of `loops` below this processor can run.
std::size_t supported_loops() {
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2")) return 1;
    const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return wide ? 3 : 2;
#else
    return 1;
#endif
}

/// No pop from an empty stack, never deeper than the loops' stack, one value at the end.
bool is_order(std::span<const int> merges_after) {
    int height = 0;
    for (const int merges : merges_after) {
        height += 1 - merges;
        if (merges < 0 || height < 1 || height >= deepest_stack) return false;
    }
    return height == 1;
}

}  // namespace

std::span<const SumLoop> sum_loops() {
    static constexpr std::array loops = {
        SumLoop{"baseline", baseline::sum},
#if defined(__x86_64__)
        SumLoop{"avx2", avx2::sum},
        SumLoop{"avx512", avx512::sum},
#endif
    };
    static const std::size_t supported = supported_loops();
    return std::span(loops).first(supported);
}

void sum_into(std::span<const int> merges_after,
              std::span<const float* const> inputs,
              std::span<float* const> outputs,
              std::size_t count) {
    static const SumLoop fastest = sum_loops().back();
    expect(inputs.size() == merges_after.size() && is_order(merges_after), "an order of inputs");
    fastest.sum(
        {merges_after.data(), inputs.data(), inputs.size(), outputs.data(), outputs.size(), count});
}

}  // namespace lockstep
