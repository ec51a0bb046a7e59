// SPDX-License-Identifier: Apache-2.0
// The norm of all gradients decides how far they are clipped, so its bits decide everything after
// it; and it is a sum over all parameters, cut differently for every number of ranks. A fixed order
// of additions would tie it to one cut. This sum has no order, because it does not round:
//
//     2^-298 is the square of the smallest float     2^256 is above the square of the largest
//       |                                                                        |
//     [ limb 0 | limb 1 | limb 2 | ...  32 bits each, in 64-bit words  ... | limb 17 | .. limb 19 ]
//                         |<--- the 53 bits of one double --->|
//                          added into three limbs; carries wait in the words' upper halves
//
// Integers add in any order and on any rank: MPI_SUM over the words gives the sum over all ranks.
// It is rounded once, when value() is asked for.
//
// Blocks of squares are first added in doubles that provably do not round (square_sums.cpp); only
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

#include "lockstep/comm/exact_words.hpp"

#include "norm/square_sums.hpp"

#include <algorithm>

namespace lockstep {
namespace {

using namespace exact;

/// Few enough additions for the room above a limb's 32 bits.
constexpr std::size_t carry_after = std::size_t{1} << 20;

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
    const auto sums = square_sums(values);
    if (!sums) return add_one_by_one(values);
    for (const double sum : *sums) add(words_.data(), sum);
}

void ExactSum::add_one_by_one(const float* values) {
    for (std::size_t i = 0; i < square_block; ++i) add_square(words_.data(), values[i]);
}

double ExactSum::value() const {
    return rounded(words_.data());
}

}  // namespace lockstep
