// SPDX-License-Identifier: Apache-2.0
// Private memory for gradients and parameters, aligned as the shared kind is.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

namespace lockstep {

/// Both for vector loads and so that no two ranks' pages mix.
inline constexpr std::size_t page_bytes = 4096;

/// The next multiple of page_bytes.
inline std::size_t whole_pages(std::size_t bytes) {
    return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

struct FreeMemory {
    void operator()(float* memory) const { std::free(memory); }
};
using AlignedFloats = std::unique_ptr<float[], FreeMemory>;

/// `count` zeros at a page boundary.
inline AlignedFloats make_aligned_floats(std::size_t count) {
    const std::size_t bytes = whole_pages(count * sizeof(float) + 1);
    auto* memory = static_cast<float*>(std::aligned_alloc(page_bytes, bytes));
    if (memory == nullptr) throw std::bad_alloc();
    std::memset(memory, 0, bytes);
    return AlignedFloats(memory);
}

}  // namespace lockstep
