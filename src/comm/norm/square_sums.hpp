// SPDX-License-Identifier: Apache-2.0
// Exact sums of the squares of one block of floats, in doubles.
#pragma once

#include <array>
#include <cstddef>
#include <optional>

namespace lockstep {

inline constexpr std::size_t square_block = 1024;

/// Up to three doubles whose sum is the block's.
using SquareSums = std::array<double, 3>;

/// The exact sum of the squares of square_block floats, each part a multiple of 2^-298; nothing if
/// one of them is not finite, or if they span more than twelve decades.
///
/// Squares of floats are exact in double. Adding and subtracting 1.5 * 2^(52+g) rounds one to a
/// multiple of 2^g (Rump, Ogita, Oishi, "Accurate floating-point summation", SIAM J. Sci. Comput.
/// 31(1), 2008, https://doi.org/10.1137/050645671); g is such that 1024 of these add up in 53 bits.
/// What is left of each square goes on to a finer grid, and in the last sum nothing is left over.
std::optional<SquareSums> square_sums(const float* values);

}  // namespace lockstep
