// SPDX-License-Identifier: Apache-2.0
// Private memory for gradients and parameters, aligned like shared memory.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

namespace lockstep {

/// Alignment for vector loads, and so that ranks share no page.
inline constexpr std::size_t page_bytes = 4096;

/// Returns `bytes` rounded up to a multiple of page_bytes.
inline std::size_t whole_pages(std::size_t bytes) {
    return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

struct FreeMemory {
    void operator()(float* memory) const { std::free(memory); }
};
using AlignedFloats = std::unique_ptr<float[], FreeMemory>;

/// Returns `count` zeros at a page boundary.
inline AlignedFloats make_aligned_floats(std::size_t count) {
    const std::size_t bytes = whole_pages(count * sizeof(float) + 1);
    auto* memory = static_cast<float*>(std::aligned_alloc(page_bytes, bytes));
    if (memory == nullptr) throw std::bad_alloc();
    std::memset(memory, 0, bytes);
    return AlignedFloats(memory);
}

}  // namespace lockstep
