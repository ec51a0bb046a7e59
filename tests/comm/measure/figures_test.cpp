// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/measure.hpp"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

namespace {

using namespace lockstep;
using testing::ElementsAre;

TEST(Figures, AreNcclTests) {
    EXPECT_DOUBLE_EQ(algorithm_gb_per_s(2'000'000'000, 0.5), 4);
    EXPECT_DOUBLE_EQ(bus_gb_per_s(2'000'000'000, 0.5, 2), 4);
    EXPECT_DOUBLE_EQ(bus_gb_per_s(2'000'000'000, 0.5, 4), 6);
    EXPECT_DOUBLE_EQ(bus_gb_per_s(1000, 1, 1), 0);
}

TEST(Figures, TheMemoryLimitCountsReadsOfEveryBufferAndOneWrite) {
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

}  // namespace
