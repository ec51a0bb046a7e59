// SPDX-License-Identifier: Apache-2.0
// Large aligned memory that costs nothing until it is used, and its division among the fields of
// rows, each of which begins at a new line.
#pragma once

#include "lockstep/data/dataset_index.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace lockstep {

inline constexpr std::uint64_t buffer_alignment = 64;

/// Returns `bytes` rounded up so that the next item is aligned.
constexpr std::uint64_t aligned(std::uint64_t bytes) {
    return (bytes + buffer_alignment - 1) / buffer_alignment * buffer_alignment;
}

/// Anonymous pages of this process. Null state: empty. Move-only.
class Memory {
  public:
    Memory() = default;
    explicit Memory(std::uint64_t bytes);
    Memory(Memory&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    Memory& operator=(Memory&& other) noexcept;
    ~Memory() { reset(); }

    std::span<std::byte> bytes() const { return {data_, bytes_}; }

  private:
    void reset();
    std::byte* data_ = nullptr;
    std::uint64_t bytes_ = 0;
};

/// Returns the memory for `rows` rows.
std::uint64_t row_memory(const DatasetIndex& index, std::uint64_t rows);

/// Returns the fields' parts of `memory` of that size, each with room for exactly `rows`.
std::vector<std::span<std::byte>> divided(const DatasetIndex& index,
                                          std::uint64_t rows,
                                          std::span<std::byte> memory);

}  // namespace lockstep
