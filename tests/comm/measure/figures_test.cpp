// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/measure.hpp"

#include "measure/textbook.hpp"
#include "support/unit.hpp"

#include <algorithm>
#include <vector>

#include <rapidcheck/gtest.h>

namespace {

using namespace lockstep;
using Floats = std::vector<float>;

TEST(Figures, AreNcclTestsAndTheMemoryLimitCountsReadsOfEveryBufferAndOneWrite) {
    EXPECT_DOUBLE_EQ(algorithm_gb_per_s(2'000'000'000, 0.5), 4);
    EXPECT_DOUBLE_EQ(bus_gb_per_s(2'000'000'000, 0.5, 2), 4);
    EXPECT_DOUBLE_EQ(bus_gb_per_s(2'000'000'000, 0.5, 4), 6);
    EXPECT_DOUBLE_EQ(bus_gb_per_s(1000, 1, 1), 0);
    EXPECT_DOUBLE_EQ(fraction_of({1000, 3000}, 1, 2), 1);
    EXPECT_DOUBLE_EQ(fraction_of({1000, 3000}, 2, 2), 0.5);
}

TEST(SizeSteps, GrowByTheFactor) {
    EXPECT_THAT(size_steps(8, 64, 2), ElementsAre(8, 16, 32, 64));
    EXPECT_THAT(size_steps(8, 8, 2), ElementsAre(8));
    EXPECT_THAT(size_steps(8, 100, 10), ElementsAre(8, 80));
}

RC_GTEST_PROP(SizeSteps, AreWholeElementsThatGrowWithinTheBounds, ()) {
    const auto least = *rc::gen::inRange<std::size_t>(8, 5000);
    const auto most = least + *rc::gen::inRange<std::size_t>(0, 100'000);
    const double factor = 1.01 + 0.01 * *rc::gen::inRange(0, 300);
    const auto sizes = size_steps(least, most, factor);
    RC_ASSERT(!sizes.empty());
    RC_ASSERT(sizes.front() == least / 8 * 8);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        RC_ASSERT(sizes[i] % 8 == 0 && sizes[i] <= most);
        if (i > 0) RC_ASSERT(sizes[i] > sizes[i - 1]);
    }
}

Floats filled(std::size_t count, int rank, int ranks, int round) {
    Floats floats(count);
    fill_exact(floats, rank, ranks, round);
    return floats;
}

/// One rank after another.
Floats summed(std::size_t count, int ranks, int round) {
    Floats sum = filled(count, 0, ranks, round);
    for (int rank = 1; rank < ranks; ++rank) {
        const Floats more = filled(count, rank, ranks, round);
        for (std::size_t i = 0; i < count; ++i) sum[i] += more[i];
    }
    return sum;
}

struct Case {
    int ranks, round;
    std::size_t count;
};

Case any_case() {
    return {*rc::gen::inRange(2, 300),
            *rc::gen::inRange(0, 10),
            *rc::gen::inRange<std::size_t>(2, 200)};
}

RC_GTEST_PROP(ExactPattern, IsExact, ()) {
    const Case c = any_case();
    RC_ASSERT(count_wrong(summed(c.count, c.ranks, c.round), c.ranks, c.round) == 0u);
}

RC_GTEST_PROP(ExactPattern, SeesAnyElementChanged, ()) {
    const Case c = any_case();
    Floats sum = summed(c.count, c.ranks, c.round);
    const auto element = *rc::gen::inRange<std::size_t>(0, c.count);
    const auto byte = *rc::gen::inRange<std::size_t>(0, sizeof(float));
    reinterpret_cast<unsigned char*>(sum.data())[element * sizeof(float) + byte] ^= 0x10;
    RC_ASSERT(count_wrong(sum, c.ranks, c.round) == 1u);
}

TEST(ExactPattern, SeesARankThatWasLeftOutAnOldRoundAndSwappedHalves) {
    constexpr std::size_t count = 4096;
    for (int ranks = 2; ranks <= 8; ++ranks)
        EXPECT_GT(count_wrong(filled(count, 0, ranks, 0), ranks, 0), count / 2) << ranks;
    EXPECT_GT(count_wrong(summed(count, 3, 0), 3, 1), 1000u);
    Floats sum = summed(count, 2, 0);
    std::rotate(sum.begin(), sum.begin() + count / 2, sum.end());
    EXPECT_GT(count_wrong(sum, 2, 0), count / 2);
}

}  // namespace
