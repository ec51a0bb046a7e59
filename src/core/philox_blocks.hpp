// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10 of many consecutive counters at once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep {

// Multipliers and Weyl constants (Salmon et al., table 2).
inline constexpr std::uint64_t philox_multiplier_0 = 0xD2511F53, philox_multiplier_1 = 0xCD9E8D57;
inline constexpr std::uint32_t philox_weyl_0 = 0x9E3779B9, philox_weyl_1 = 0xBB67AE85;

// Large enough that no round waits for the previous one, and more than compilers unroll completely,
// which made it twice as slow.
inline constexpr std::size_t philox_blocks_at_once = 32;

/// Two words of each block: of its four, the first two and the last two.
using PhiloxWords = std::array<std::uint64_t, 2 * philox_blocks_at_once>;

/// Computes the words of the counters {first, 0}, {first + 1, 0}, ...
using PhiloxBlocks = PhiloxWords (*)(std::uint64_t first, std::uint64_t key);

/// Returns all versions that this processor can run, the fastest last. The results are the same.
std::span<const PhiloxBlocks> philox_blocks();

}  // namespace lockstep
