// SPDX-License-Identifier: Apache-2.0
#include "norm/square_sums.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace lockstep {
namespace {

/// What every processor has: as fast as one double at a time, which waits for each addition.
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

}  // namespace

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

}  // namespace lockstep
