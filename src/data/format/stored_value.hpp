// SPDX-License-Identifier: Apache-2.0
// Numbers as files have them: taken from bytes of either order, floats of 16 bits made wider.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace lockstep {

template <class Value>
Value taken(const std::byte* from, std::endian order) {
    std::array<std::byte, sizeof(Value)> bytes{};
    std::memcpy(bytes.data(), from, sizeof(Value));
    if (order == std::endian::big) std::ranges::reverse(bytes);
    return std::bit_cast<Value>(bytes);
}

/// Floats of 16 bits: IEEE 754's binary16, and the upper half of a binary32.
struct Half {
    std::uint16_t bits;
};
struct Brain {
    std::uint16_t bits;
};

/// Exact, also for subnormal numbers; what is no number keeps its bits, as numpy has it.
inline float widened(Half half) {
    const std::uint32_t sign = std::uint32_t{half.bits} >> 15 << 31;
    const std::uint32_t exponent = half.bits >> 10 & 0x1fU, fraction = half.bits & 0x3ffU;
    if (exponent == 0) {
        const float value = static_cast<float>(fraction) * 0x1p-24F;
        return sign != 0 ? -value : value;
    }
    const std::uint32_t wide = exponent == 0x1f ? 0xff : exponent + 112;
    return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

inline float widened(Brain brain) {
    return std::bit_cast<float>(std::uint32_t{brain.bits} << 16);
}

}  // namespace lockstep
