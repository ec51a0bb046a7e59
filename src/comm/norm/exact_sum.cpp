// SPDX-License-Identifier: Apache-2.0
// The norm of all gradients decides how far they are clipped, so its bits decide everything after
// it. It is a sum over all parameters, which are cut differently for every number of ranks. A fixed
// order of additions would tie it to one cut. This sum has no order, because it does not round:
//
//     2^-298 is the square of the smallest float     2^256 is above the square of the largest
//       |                                                                        |
//     [ limb 0 | limb 1 | limb 2 | ...  32 bits each, in 64-bit words  ... | limb 17 | .. limb 19 ]
//                         |<--- the 53 bits of one double --->|
//                          added into three limbs; carries wait in the words' upper halves
//
// Integers can be added in any order and on any rank: MPI_SUM over the words gives the sum over all
// ranks. It is rounded once, in value().
//
// Blocks of squares are first added in doubles that provably do not round (square_sums()); only
// their few totals come here, or the cost of three limbs a value would show in every step.
//
// What must never happen:
// - A double is added that is no multiple of 2^-298 or is 2^269 and more: bits would be lost
//   silently.
// - A word overflows: carry() after 2^20 values at the latest, and before words are handed out.
// - A NaN or an infinity is taken for a number: they are counted in words of their own, so that
//   every rank learns of them by the same sum.
//
// Tested: comm/norm/exact_sum_test.cpp (against quad precision; order, cuts, ties, extremes),
// comm/norm/global_norm_test.cpp (over ranks).

#include "lockstep/comm/exact_sum.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

namespace lockstep {
namespace {

using namespace exact;

/// Few enough additions for the room above a limb's 32 bits.
constexpr std::size_t carry_after = std::size_t{1} << 20;

constexpr std::size_t square_block = 1024;

/// Up to three doubles whose sum is the block's.
using SquareSums = std::array<double, 3>;

/// Vectors that every processor has. One double at a time would be slower, because it waits for
/// each addition.
constexpr std::size_t vector_bytes = 16;
constexpr std::size_t lanes = vector_bytes / sizeof(double);
constexpr std::size_t int_lanes = vector_bytes / sizeof(std::int32_t);
typedef float Floats __attribute__((vector_size(sizeof(float) * lanes)));
typedef double Doubles __attribute__((vector_size(vector_bytes)));
typedef std::int32_t Ints __attribute__((vector_size(vector_bytes)));

/// Vectors in flight, so that one addition need not wait for another.
constexpr std::size_t columns = 4;

/// The largest and the smallest non-zero magnitude as bit patterns, which order as floats do.
struct Magnitudes {
    std::int32_t largest = 0, smallest = std::numeric_limits<std::int32_t>::max();
};

Magnitudes magnitudes(const float* values) {
    constexpr std::int32_t all = std::numeric_limits<std::int32_t>::max();
    Ints largest = {}, smallest = largest + all;
    for (std::size_t i = 0; i < square_block; i += int_lanes) {
        Ints bits;
        std::memcpy(&bits, values + i, sizeof(bits));
        bits &= all;
        const Ints or_all = bits | ((bits == 0) & all);
        largest = bits > largest ? bits : largest;
        smallest = or_all < smallest ? or_all : smallest;
    }
    Magnitudes found;
    for (std::size_t lane = 0; lane < int_lanes; ++lane) {
        found.largest = std::max(found.largest, largest[lane]);
        found.smallest = std::min(found.smallest, smallest[lane]);
    }
    return found;
}

/// The power of two of a magnitude's leading bit; that of the smallest normal float for less.
int exponent_of(std::int32_t bits) {
    return std::max(bits >> 23, 1) - 127;
}

Doubles squares_of(const float* values) {
    Floats floats;
    std::memcpy(&floats, values, sizeof(floats));
    const Doubles wide = __builtin_convertvector(floats, Doubles);
    return wide * wide;
}

template <std::size_t parts>
SquareSums sum_in_parts(const float* values, std::array<double, parts - 1> grids) {
    Doubles totals[parts][columns] = {};
    for (std::size_t i = 0; i < square_block; i += columns * lanes) {
#pragma GCC unroll 4
        for (std::size_t column = 0; column < columns; ++column) {
            Doubles rest = squares_of(values + i + column * lanes);
#pragma GCC unroll 2
            for (std::size_t part = 0; part + 1 < parts; ++part) {
                const Doubles on_grid = (rest + grids[part]) - grids[part];
                totals[part][column] += on_grid;
                rest -= on_grid;
            }
            totals[parts - 1][column] += rest;
        }
    }
    SquareSums sums{};
    for (std::size_t part = 0; part < parts; ++part)
        for (const Doubles& total : totals[part])
            for (std::size_t lane = 0; lane < lanes; ++lane) sums[part] += total[lane];
    return sums;
}

/// The exact sum of the squares of square_block floats, each part a multiple of 2^-298; nothing if
/// one of them is not finite, or if they span more than twelve decades.
///
/// Squares of floats are exact in double. Adding and subtracting 1.5 * 2^(52+g) rounds one to a
/// multiple of 2^g (Rump, Ogita, Oishi, "Accurate floating-point summation", SIAM J. Sci. Comput.
/// 31(1), 2008, https://doi.org/10.1137/050645671); g is such that 1024 of these add up in 53 bits.
/// What is left of each square goes on to a finer grid, and in the last sum nothing is left over.
std::optional<SquareSums> square_sums(const float* values) {
    const auto [largest, smallest] = magnitudes(values);
    constexpr std::int32_t infinity = 0x7f800000;
    if (largest == 0) return SquareSums{};
    if (largest >= infinity) return {};
    // Squares are below 2^top and multiples of 2^bottom. A part with grid 2^g holds sums of 1024
    // terms below 2^(g+43); the rests are at most 2^(g-1), so that the next grid may be 2^(g-44).
    const int top = 2 * exponent_of(largest) + 2, bottom = 2 * (exponent_of(smallest) - 23);
    const int first = top - 43, second = first - 44, third = second - 44;
    const auto rounder = [](int grid) { return std::ldexp(1.5, 52 + grid); };
    if (bottom >= second) return sum_in_parts<2>(values, {rounder(first)});
    if (bottom >= third) return sum_in_parts<3>(values, {rounder(first), rounder(second)});
    return {};
}

}  // namespace

void ExactSum::add_squares(std::span<const float> values) {
    while (!values.empty()) {
        const auto chunk = values.first(std::min(values.size(), carry_after));
        values = values.subspan(chunk.size());
        const std::size_t whole = chunk.size() / square_block * square_block;
        for (std::size_t i = 0; i < whole; i += square_block) add_block(chunk.data() + i);
        std::array<float, square_block> last{};
        std::ranges::copy(chunk.subspan(whole), last.begin());
        if (whole < chunk.size()) add_block(last.data());
        carry(words_.data());
    }
}

void ExactSum::add_block(const float* values) {
    if (const auto sums = square_sums(values))
        for (const double sum : *sums) add(words_.data(), sum);
    else
        for (std::size_t i = 0; i < square_block; ++i) add_square(words_.data(), values[i]);
}

}  // namespace lockstep
