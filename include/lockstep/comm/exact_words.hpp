// SPDX-License-Identifier: Apache-2.0
/// @file
/// The integers of an exact sum, and the addition of a square to them: one source for the host and
/// for a kernel.
#pragma once

#include "lockstep/core/host_device.hpp"

#include <cmath>
#include <cstdint>
#include <cstring>

namespace lockstep::exact {

inline constexpr int limbs = 20;          ///< 32 bits in 64 each, least first
inline constexpr int infinities = limbs;  ///< index of the number of infinities
inline constexpr int nans = limbs + 1;    ///< index of the number of NaNs
inline constexpr int words =
    limbs + 2;                        ///< words of a sum; fewer than 2^30 carried sums may be added
inline constexpr int limb_bits = 32;  ///< bits above these are carries
inline constexpr std::int64_t limb_mask =
    (std::int64_t{1} << limb_bits) - 1;     ///< the bits of a limb
inline constexpr int unit_exponent = -298;  ///< bit 0 of limb 0 is 2^unit_exponent

/// Adds `multiple`, a multiple of 2^unit_exponent below 2^269. At most 2^20 before carry().
LOCKSTEP_HOST_DEVICE inline void add(std::int64_t* to, double multiple) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &multiple, sizeof bits);
    const int exponent = static_cast<int>(bits >> 52 & 0x7ff);
    if (exponent == 0) return;  // zero: less than 2^-1022 is no multiple
    std::uint64_t mantissa = (bits & ((std::uint64_t{1} << 52) - 1)) | std::uint64_t{1} << 52;
    int position = exponent - 1075 - unit_exponent;  // position of the mantissa's last bit
    // The number is a multiple of the unit, so only zeros are shifted out.
    if (position < 0) {
        mantissa >>= -position;
        position = 0;
    }
    const int limb = position / limb_bits, offset = position % limb_bits;
    const auto low = static_cast<std::int64_t>((mantissa & limb_mask) << offset);
    const auto high = static_cast<std::int64_t>(mantissa >> limb_bits << offset);
    const std::int64_t sign = multiple < 0 ? -1 : 1;
    to[limb] += sign * (low & limb_mask);
    to[limb + 1] += sign * ((low >> limb_bits) + (high & limb_mask));
    to[limb + 2] += sign * (high >> limb_bits);
}

/// The square of a float is exact in double.
LOCKSTEP_HOST_DEVICE inline void add_square(std::int64_t* to, float value) {
    const double exact_value = value;
    if (value != value)
        ++to[nans];
    else if (std::fabs(value) > 3.402823466e+38F)
        ++to[infinities];
    else
        add(to, exact_value * exact_value);
}

/// Returns true for infinities and NaNs.
LOCKSTEP_HOST_DEVICE inline bool is_nonfinite(float value) {
    constexpr std::uint32_t exponent = 0x7F800000;
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    return (bits & exponent) == exponent;
}

/// Moves carries up. Afterwards every limb but the last is in [0, 2^32).
LOCKSTEP_HOST_DEVICE inline void carry(std::int64_t* to) {
    for (int i = 0; i + 1 < limbs; ++i) {
        to[i + 1] += to[i] >> limb_bits;
        to[i] &= limb_mask;
    }
}

/// Returns true if no value was infinite or NaN.
LOCKSTEP_HOST_DEVICE inline bool is_finite(const std::int64_t* sum) {
    return sum[infinities] == 0 && sum[nans] == 0;
}

/// Returns the sum, rounded once, to nearest even; NaN or infinity if any value was one.
LOCKSTEP_HOST_DEVICE inline double rounded(const std::int64_t* sum) {
    if (sum[nans] != 0) return NAN;
    if (sum[infinities] != 0) return HUGE_VAL;
    std::int64_t carried[words];
    for (int i = 0; i < words; ++i) carried[i] = sum[i];
    carry(carried);
    int top = limbs;
    while (top > 0 && carried[top - 1] == 0) --top;
    if (top == 0) return 0;
    // The 64 bits from the leading one on; lower bits only break ties.
    const auto limb = [&](int below) {
        return below < top ? static_cast<std::uint64_t>(carried[top - 1 - below]) : 0;
    };
    int zeros = 0;
    while ((limb(0) << zeros >> (limb_bits - 1)) == 0) ++zeros;
    std::uint64_t leading = (limb(0) << limb_bits | limb(1)) << zeros;
    leading |= limb(2) << zeros >> limb_bits;
    bool is_more = (limb(2) << zeros & limb_mask) != 0;
    for (int i = 0; i + 3 < top; ++i) is_more = is_more || carried[i] != 0;
    if (is_more) leading |= 1;
    const int last_bit = limb_bits * (top - 2) - zeros + unit_exponent;
    return std::ldexp(static_cast<double>(leading), last_bit);
}

/// Adds the squares of `count` floats to `words`, both in the memory of the executing device. Each
/// block of the grid counts as one of the sums that may be added.
struct SquaresLaunch {
    const float* values = nullptr;
    std::int64_t count = 0;
    std::int64_t* words = nullptr;
};

/// Names of the C entry points in liblockstep_cuda.so: one adds squares, the other only marks the
/// sum where a float is not finite. They enqueue on a cudaStream_t, whose device is current, and
/// return a cudaError_t.
inline constexpr const char* squares_entry_point = "lockstep_cuda_add_squares";
/// The other one.
inline constexpr const char* nonfinite_entry_point = "lockstep_cuda_add_nonfinite";
/// The type of these entry points.
using SquaresEntryPoint = int (*)(const SquaresLaunch* launch, void* stream);

/// Minimum number of squares that each thread adds up in its own words.
inline constexpr std::int64_t squares_of_thread = 64;

/// Returns the number of blocks for `count` floats.
inline std::int64_t squares_blocks(std::int64_t count) {
    return blocks_for((count + squares_of_thread - 1) / squares_of_thread);
}

/// Adds the squares of one of `blocks` x `threads` threads and carries them. The sum of a block is
/// carried too before it leaves the block.
LOCKSTEP_HOST_DEVICE inline void add_own(const SquaresLaunch& launch,
                                         std::int64_t block,
                                         int thread,
                                         std::int64_t blocks,
                                         int threads,
                                         std::int64_t* own) {
    for (std::int64_t i = block * threads + thread; i < launch.count; i += blocks * threads)
        add_square(own, launch.values[i]);
    carry(own);
}

/// Marks the sum if one of the thread's floats is not finite. All threads store the same number.
LOCKSTEP_HOST_DEVICE inline void nonfinite_thread(
    const SquaresLaunch& launch, std::int64_t block, int thread, std::int64_t blocks, int threads) {
    bool found = false;
    const auto look = [&]<int width>(std::int64_t i) {
        const Floats<width> floats = load_floats<width>(launch.values + i);
        for (const float value : floats.at) found |= is_nonfinite(value);
    };
    for_own_floats(
        launch.count, are_aligned(launch.values), block * threads + thread, blocks * threads, look);
    if (found) launch.words[nans] = 1;
}

}  // namespace lockstep::exact
