// SPDX-License-Identifier: Apache-2.0
// float32 to and from the two 16-bit formats: to nearest, ties to even, NaN stays NaN.
#pragma once

#include <bit>
#include <cstdint>

namespace lockstep {

inline std::uint16_t to_bfloat16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    const std::uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    return static_cast<std::uint16_t>(is_nan ? 0x7fc0u : rounded >> 16);
}

inline float from_bfloat16(std::uint16_t half) {
    return std::bit_cast<float>(std::uint32_t{half} << 16);
}

/// Exponents are rebiased by integer arithmetic; below the normal numbers, adding 0.5 makes the
/// float unit round to multiples of 2^-24.
inline std::uint16_t to_float16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = bits & 0x80000000u, magnitude = bits ^ sign;
    constexpr std::uint32_t infinity = 0x7f800000u, overflow = (127u + 16u) << 23,
                            normal = (127u - 14u) << 23;
    std::uint32_t half = 0;
    if (magnitude > infinity) {
        half = 0x7e00u;
    } else if (magnitude >= overflow) {
        half = 0x7c00u;
    } else if (magnitude < normal) {
        half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) -
               std::bit_cast<std::uint32_t>(0.5f);
    } else {
        const std::uint32_t odd = (magnitude >> 13) & 1u;
        half = (magnitude - ((127u - 15u) << 23) + 0xfffu + odd) >> 13;
    }
    return static_cast<std::uint16_t>(half | sign >> 16);
}

inline float from_float16(std::uint16_t half) {
    const std::uint32_t sign = (half & 0x8000u) << 16, magnitude = (half & 0x7fffu) << 13;
    constexpr std::uint32_t all_exponent = 0x7c00u << 13;
    if (magnitude >= all_exponent) return std::bit_cast<float>(sign | 0x7f800000u | magnitude);
    constexpr float rebias = 0x1p112f;  // also makes subnormal numbers normal
    const float value = std::bit_cast<float>(magnitude) * rebias;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
}

}  // namespace lockstep
