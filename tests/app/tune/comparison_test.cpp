// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/numbers.hpp"

#include "tune/trials.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using Ways = std::vector<std::vector<double>>;

TEST(SpeedUp, IsTheMedianOfTheRounds) {
    const std::vector before{2.0, 2.1, 1.9}, after{1.0, 1.0, 1.0};
    const SpeedUp found = speed_up(before, after);
    EXPECT_DOUBLE_EQ(found.median, 2);
    EXPECT_DOUBLE_EQ(found.least, 1.9);
    EXPECT_DOUBLE_EQ(found.most, 2.1);
    EXPECT_TRUE(found.is_gain());
    EXPECT_EQ(speed_up_text(found), "2.00 times as fast (1.90 to 2.10)");
}

TEST(SpeedUp, IsNoGainWithinTheNoise) {
    const std::vector before{1.10, 1.00, 1.20}, after{1.02, 0.99, 1.15};
    EXPECT_GT(speed_up(before, after).least, 1);
    EXPECT_FALSE(speed_up(before, after).is_gain());
}

TEST(SpeedUp, IsNoGainWhereOneRoundSaysOtherwise) {
    const std::vector before{2.0, 2.0, 2.0}, after{1.0, 1.0, 2.01};
    EXPECT_FALSE(speed_up(before, after).is_gain());
}

TEST(QuickestWay, IsTheQuickestOfThoseBeyondTheNoise) {
    EXPECT_EQ(quickest_way(Ways{{2, 2}, {1.5, 1.5}, {1, 1}, {3, 3}}), 2u);
    EXPECT_EQ(quickest_way(Ways{{2, 2}, {1.9, 2.05}}), 0u);
    EXPECT_EQ(quickest_way(Ways{{2, 2}}), 0u);
}

TEST(QuickestWay, IsNoneThatDidNotRun) {
    EXPECT_EQ(quickest_way(Ways{{2, 2}, {}, {1}}), 0u);
}

TEST(MedianOf, TakesTheMiddle) {
    EXPECT_DOUBLE_EQ(median_of({3, 1, 2}), 2);
    EXPECT_DOUBLE_EQ(median_of({4, 1, 2, 3}), 2.5);
}

}  // namespace
}  // namespace lockstep
