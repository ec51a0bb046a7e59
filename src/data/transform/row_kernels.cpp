// SPDX-License-Identifier: Apache-2.0
#include "rows.hpp"

#include <array>

namespace lockstep {

std::span<const RowKernels* const> row_kernels() {
    static constexpr std::array kernels = {
        &baseline::row_kernels,
#if defined(__x86_64__)
        &avx2::row_kernels,
#endif
    };
#if defined(__x86_64__)
    return std::span(kernels).first(__builtin_cpu_supports("avx2") ? 2 : 1);
#else
    return kernels;
#endif
}

}  // namespace lockstep
