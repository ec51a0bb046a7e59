// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/exact_sum.hpp"

#include "lockstep/core/random.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace {

using namespace lockstep;

__extension__ typedef __float128 Quad;

double sum_of_squares(std::span<const float> values) {
    ExactSum sum;
    sum.add_squares(values);
    return sum.value();
}

/// `count` floats of both signs whose exponents are uniform in [low, high).
std::vector<float> any_values(std::uint64_t key, std::size_t count, int low, int high) {
    CounterRandom random(Purpose::test, {key});
    std::vector<float> values(count);
    for (float& value : values) {
        const auto exponent =
            low + static_cast<int>(random.below(static_cast<unsigned>(high - low)));
        const double magnitude = std::ldexp(1.0 + random.uniform(), exponent);
        value = static_cast<float>(random.below(2) == 0 ? magnitude : -magnitude);
    }
    return values;
}

std::vector<float> some_values() {
    const auto key = *rc::gen::arbitrary<std::uint64_t>();
    const auto count = *rc::gen::inRange<std::size_t>(0, 5000);
    const int low = *rc::gen::inRange(-149, 120);
    const int high = *rc::gen::inRange(low + 1, 128);
    return any_values(key, count, low, high);
}

RC_GTEST_PROP(ExactSum, IsTheRoundedSumWhereQuadPrecisionIsExact, ()) {
    // Squares of 48 bits, 2 * 20 bits apart, 2^13 of them: 101 bits, fewer than the 113 of a quad.
    const int low = *rc::gen::inRange(-149, 108);
    const auto values = any_values(*rc::gen::arbitrary<std::uint64_t>(),
                                   *rc::gen::inRange<std::size_t>(0, 8192),
                                   low,
                                   low + 20);
    Quad quad = 0;
    for (const float value : values) quad += static_cast<Quad>(value) * static_cast<Quad>(value);
    RC_ASSERT(sum_of_squares(values) == static_cast<double>(quad));
}

RC_GTEST_PROP(ExactSum, DoesNotDependOnOrder, ()) {
    std::vector<float> values = some_values();
    const double sum = sum_of_squares(values);
    lockstep::shuffle(std::span(values),
                      CounterRandom(Purpose::test, {*rc::gen::arbitrary<std::uint64_t>()}));
    RC_ASSERT(sum_of_squares(values) == sum);
    std::ranges::sort(values);
    RC_ASSERT(sum_of_squares(values) == sum);
}

RC_GTEST_PROP(ExactSum, DoesNotDependOnHowItIsCut, ()) {
    const std::vector<float> values = some_values();
    ExactSum whole, joined;
    whole.add_squares(values);
    for (std::size_t begin = 0; begin < values.size();) {
        const auto size = std::min(*rc::gen::inRange<std::size_t>(1, 3000), values.size() - begin);
        ExactSum part;
        part.add_squares(std::span(values).subspan(begin, size));
        std::ranges::transform(
            joined.words(), part.words(), joined.words().begin(), std::plus<std::int64_t>());
        begin += size;
    }
    RC_ASSERT(joined.value() == whole.value());
}

RC_GTEST_PROP(ExactSum, DoesNotSeeZeros, ()) {
    const std::vector<float> values = some_values();
    std::vector<float> padded;
    const auto period = *rc::gen::inRange<std::size_t>(1, 50);
    for (std::size_t i = 0; i < values.size(); ++i) {
        padded.push_back(values[i]);
        if (i % period == 0) padded.insert(padded.end(), 16, i % 2 == 0 ? 0.0f : -0.0f);
    }
    RC_ASSERT(sum_of_squares(padded) == sum_of_squares(values));
}

RC_GTEST_PROP(ExactSum, RoundsToNearestEven, ()) {
    // 2^52 units and one value whose square is a fraction of a unit: every case of rounding.
    const int shift = *rc::gen::inRange(-30, 30);
    const float unit = std::ldexp(1.0f, shift);
    const auto odd = *rc::gen::inRange(0, 2);
    std::vector<float> values = {std::ldexp(unit, 26)};
    if (odd == 1) values.push_back(unit);
    const float root_half = unit * static_cast<float>(std::sqrt(0.5));  // a little below a half
    const double base = std::ldexp(1.0, 2 * shift + 52) + odd * std::ldexp(1.0, 2 * shift);
    values.push_back(root_half);
    const double below_half = sum_of_squares(values);
    values.push_back(std::ldexp(unit, -10));
    const double above_half = sum_of_squares(values);
    RC_ASSERT(std::pow(root_half / unit, 2) < 0.5);
    RC_ASSERT(below_half == base);
    RC_ASSERT(above_half == base + std::ldexp(1.0, 2 * shift));
    // Exactly a half: two quarters.
    values.resize(odd == 1 ? 2u : 1u);
    values.insert(values.end(), 2, unit / 2);
    RC_ASSERT(sum_of_squares(values) == (odd == 1 ? base + std::ldexp(1.0, 2 * shift) : base));
}

/// What is left of the sum of squares once that of `large` is taken away.
double sum_without(std::span<const float> values, float large) {
    ExactSum sum, taken;
    sum.add_squares(values);
    taken.add_squares({&large, 1});
    for (std::size_t i = 0; i < sum.words().size(); ++i) sum.words()[i] -= taken.words()[i];
    return sum.value();
}

TEST(ExactSum, HoldsTheSmallestAndTheLargestTogether) {
    const float smallest = std::numeric_limits<float>::denorm_min();
    const float largest = std::numeric_limits<float>::max();
    EXPECT_EQ(sum_of_squares(std::vector{smallest}), std::ldexp(1.0, -298));
    const double square = static_cast<double>(largest) * largest;
    EXPECT_EQ(sum_of_squares(std::vector(4096, largest)), 4096 * square);
    EXPECT_EQ(sum_of_squares(std::vector{largest, smallest}), square);
    EXPECT_EQ(sum_without(std::vector{largest, smallest}, largest), std::ldexp(1.0, -298));
}

TEST(ExactSum, IsExactWhereFloatingPointLosesEverything) {
    std::vector<float> values = {1e19f};
    values.insert(values.end(), 1 << 20, 1e-9f);
    const double small = static_cast<double>(1e-9f) * 1e-9f * (1 << 20);
    EXPECT_EQ(sum_without(values, 1e19f), small);
}

// Threads one after the other, as a kernel's add their words in any order.
double sum_by_threads(std::span<const float> values) {
    namespace exact = lockstep::exact;
    ExactSum sum;
    const exact::SquaresLaunch launch{.values = values.data(),
                                      .count = static_cast<std::int64_t>(values.size())};
    const std::int64_t blocks = exact::squares_blocks(launch.count);
    for (std::int64_t block = blocks; block-- > 0;)
        for (int thread = lockstep::threads_of_block; thread-- > 0;) {
            std::array<std::int64_t, exact::words> own{};
            exact::add_own(launch, block, thread, blocks, lockstep::threads_of_block, own.data());
            for (std::size_t i = 0; i < own.size(); ++i) sum.words()[i] += own[i];
        }
    return sum.value();
}

RC_GTEST_PROP(ExactSum, IsTheSameByThreadsOfAKernel, ()) {
    const auto all = some_values();
    const auto skipped = std::min(*rc::gen::inRange<std::size_t>(0, 4), all.size());
    const auto values = std::span(all).subspan(skipped);
    RC_ASSERT(sum_by_threads(values) == sum_of_squares(values));
}

TEST(ExactSum, ByThreadsOfAKernelCountsWhatIsNoNumber) {
    const float infinity = std::numeric_limits<float>::infinity();
    const float largest = std::numeric_limits<float>::max();
    std::vector<float> values(40'000, largest);
    EXPECT_EQ(sum_by_threads(values), sum_of_squares(values));
    values[33'333] = -infinity;
    EXPECT_EQ(sum_by_threads(values), infinity);
    values[7] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(sum_by_threads(values)));
}

TEST(ExactSum, OfNothingIsZeroAndSaysThatAValueWasNotFinite) {
    const float infinity = std::numeric_limits<float>::infinity();
    const float nan = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(sum_of_squares(std::vector{1.0f, -infinity, infinity}), infinity);
    EXPECT_TRUE(std::isnan(sum_of_squares(std::vector{1.0f, nan, infinity})));
    std::vector<float> values(5000, 1.0f);
    values[4096] = nan;
    EXPECT_TRUE(std::isnan(sum_of_squares(values)));
    EXPECT_EQ(sum_of_squares({}), 0.0);
    EXPECT_EQ(sum_of_squares(std::vector<float>(3000, -0.0f)), 0.0);
}

}  // namespace
