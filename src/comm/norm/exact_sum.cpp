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

#include "norm/square_sums.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace lockstep {
namespace {

constexpr int limb_bits = 32;
constexpr std::int64_t limb_mask = (std::int64_t{1} << limb_bits) - 1;
constexpr int unit_exponent = -298;  ///< bit 0 of limb 0 is 2^unit_exponent

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
        carry(words_);
    }
}

void ExactSum::add_block(const float* values) {
    const auto sums = square_sums(values);
    if (!sums) return add_one_by_one(values);
    for (const double sum : *sums) add(sum);
}

void ExactSum::add_one_by_one(const float* values) {
    for (std::size_t i = 0; i < square_block; ++i) {
        const double value = values[i];
        if (std::isnan(value))
            ++words_[nans];
        else if (std::isinf(value))
            ++words_[infinities];
        else
            add(value * value);
    }
}

/// `multiple` of 2^unit_exponent, below 2^269.
void ExactSum::add(double multiple) {
    const auto bits = std::bit_cast<std::uint64_t>(multiple);
    const int exponent = static_cast<int>(bits >> 52 & 0x7ff);
    if (exponent == 0) return;  // zero: less than 2^-1022 is no multiple
    std::uint64_t mantissa = (bits & ((std::uint64_t{1} << 52) - 1)) | std::uint64_t{1} << 52;
    int position = exponent - 1075 - unit_exponent;  // of the mantissa's last bit
    // A multiple of the unit: what is shifted out is zeros.
    if (position < 0) {
        mantissa >>= -position;
        position = 0;
    }
    const auto limb = static_cast<std::size_t>(position / limb_bits);
    const int offset = position % limb_bits;
    const auto low = static_cast<std::int64_t>((mantissa & limb_mask) << offset);
    const auto high = static_cast<std::int64_t>(mantissa >> limb_bits << offset);
    const std::int64_t sign = multiple < 0 ? -1 : 1;
    words_[limb] += sign * (low & limb_mask);
    words_[limb + 1] += sign * ((low >> limb_bits) + (high & limb_mask));
    words_[limb + 2] += sign * (high >> limb_bits);
}

/// Afterwards every limb but the last is in [0, 2^32).
void ExactSum::carry(Words& words) {
    for (std::size_t i = 0; i + 1 < limbs; ++i) {
        words[i + 1] += words[i] >> limb_bits;
        words[i] &= limb_mask;
    }
}

double ExactSum::value() const {
    if (words_[nans] != 0) return std::numeric_limits<double>::quiet_NaN();
    if (words_[infinities] != 0) return std::numeric_limits<double>::infinity();
    Words words = words_;
    carry(words);
    std::size_t top = limbs;
    while (top > 0 && words[top - 1] == 0) --top;
    if (top == 0) return 0;
    // The 64 bits from the leading one on; what lies below only breaks ties.
    const auto limb = [&](std::size_t below) {
        return below < top ? static_cast<std::uint64_t>(words[top - 1 - below]) : 0;
    };
    const int zeros = std::countl_zero(limb(0)) - limb_bits;
    std::uint64_t leading = (limb(0) << limb_bits | limb(1)) << zeros;
    leading |= limb(2) << zeros >> limb_bits;
    const bool is_more = (limb(2) << zeros & limb_mask) != 0 ||
                         (top > 3 && std::any_of(words.begin(),
                                                 words.begin() + static_cast<int>(top) - 3,
                                                 [](std::int64_t word) { return word != 0; }));
    if (is_more) leading |= 1;
    const int last_bit = limb_bits * (static_cast<int>(top) - 2) - zeros + unit_exponent;
    return std::ldexp(static_cast<double>(leading), last_bit);
}

void sum_over(const Communicator& ranks, std::span<ExactSum> sums) {
    std::vector<std::int64_t> words;
    for (ExactSum& sum : sums) words.insert(words.end(), sum.words().begin(), sum.words().end());
    ranks.all_reduce_sum(words);
    auto next = words.begin();
    for (ExactSum& sum : sums)
        for (std::int64_t& word : sum.words()) word = *next++;
}

double global_norm(const Communicator& ranks, std::span<const std::span<const float>> stripes) {
    ExactSum sum;
    for (const std::span<const float> stripe : stripes) sum.add_squares(stripe);
    ranks.all_reduce_sum(sum.words());
    return std::sqrt(sum.value());
}

}  // namespace lockstep
