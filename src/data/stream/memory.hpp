// SPDX-License-Identifier: Apache-2.0
// Large aligned memory that costs nothing until it is touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace lockstep {

inline constexpr std::uint64_t buffer_alignment = 64;

/// `bytes` rounded up so that what follows is aligned.
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

}  // namespace lockstep
