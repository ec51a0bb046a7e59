// SPDX-License-Identifier: Apache-2.0
#include "lockstep/plan/run_length.hpp"

#include <cmath>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

// A limit 1000 s from now, when now_s() says 50.
constexpr std::int64_t deadline = 1'700'001'000;
constexpr double unix_now_s = 1'700'000'000, begin_s = 50;

TEST(SaveInterval, LosesTheLeastTime) {
    const double interval_s = save_interval_s(8, 36'000, 0.5);
    EXPECT_NEAR(interval_s, std::sqrt(2 * 8 * 36'000.0), 1e-9);
    const auto lost = [](double every_s) { return 8 / every_s + every_s / 2 / 36'000; };
    EXPECT_LT(lost(interval_s), lost(0.8 * interval_s));
    EXPECT_LT(lost(interval_s), lost(1.2 * interval_s));
}

TEST(SaveInterval, KeepsToTheShareOfTimeForSaves) {
    EXPECT_EQ(save_interval_s(8, 600, 0.01), 800);
    EXPECT_LT(save_interval_s(8, 600, 0.5), 800);
}

// Returns true if the cost of a save became known.
bool add_steps(SaveCost& cost, int steps, double wall_s, bool is_beside) {
    bool is_known = false;
    for (int i = 0; i < steps; ++i) is_known = cost.add_step(wall_s, is_beside) || is_known;
    return is_known;
}

SaveCost after_first_steps() {
    SaveCost cost;
    add_steps(cost, 10, 9, false);  // they do not count
    return cost;
}

// Two writers hold up one another's ranks: the sum of a rank's own work was a third of it.
TEST(SaveCost, IsWhatTheStepsBesideASaveShow) {
    SaveCost cost = after_first_steps();
    EXPECT_EQ(cost.mean_s(), 0);
    EXPECT_EQ(cost.usual_step_s(), 0);
    add_steps(cost, 15, 0.300, false);  // slow, too: the steps after the save tell
    add_steps(cost, 20, 0.105, true);
    cost.add_step(8, true);  // waited for data
    cost.add_save(0.001, 0.04);
    EXPECT_FALSE(add_steps(cost, 15, 0.100, false));
    EXPECT_EQ(cost.mean_s(), 0);
    EXPECT_TRUE(add_steps(cost, 16, 0.100, false));
    EXPECT_NEAR(cost.usual_step_s(), 0.100, 1e-9);
    add_steps(cost, 100, 0.200, false);  // the machine is slower now, for longer than is remembered
    add_steps(cost, 20, 0.205, true);
    cost.add_save(0.001, 0.04);
    EXPECT_TRUE(add_steps(cost, 1, 0.300, true)) << "the next save tells it";
    EXPECT_GT(cost.mean_s(), 0.001 + 20 * 0.005 - 1e-9);
}

TEST(SaveCost, IsNeverLessThanWhatIsKnown) {
    SaveCost cost = after_first_steps();
    add_steps(cost, 40, 0.100, false);
    add_steps(cost, 20, 0.099, true);
    cost.add_save(0.001, 0.04);
    EXPECT_TRUE(add_steps(cost, 16, 0.100, false));
    EXPECT_NEAR(cost.mean_s(), 0.041, 1e-9);
    add_steps(cost, 3, 5, true);  // too few to say
    cost.add_save(0.001, 0.04);
    EXPECT_TRUE(add_steps(cost, 16, 0.100, false));
    EXPECT_NEAR(cost.mean_s(), 0.041, 1e-9);
    SaveCost blocking = after_first_steps();
    blocking.add_save(0.3, 0);
    EXPECT_TRUE(add_steps(blocking, 1, 0.1, false));
    EXPECT_NEAR(blocking.mean_s(), 0.3, 1e-9);
}

TEST(SaveCost, IsSpreadSoThatStepsShowAFiftieth) {
    SaveCost cost;
    EXPECT_EQ(cost.spread(1, 0), 1) << "no step is known";
    cost = after_first_steps();
    add_steps(cost, 40, 0.100, false);
    EXPECT_EQ(cost.spread(0, 0), 1);
    EXPECT_EQ(cost.spread(0.1, 0), 50);
    EXPECT_EQ(cost.spread(0.1, 60), 30) << "it is done before the next one";
    EXPECT_EQ(cost.spread(0.1, 1), 1);
    add_steps(cost, 20, 0.110, true);
    cost.add_save(0, 0.04);
    add_steps(cost, 16, 0.100, false);
    EXPECT_NEAR(static_cast<double>(cost.spread(5, 0)), 100, 1) << "0.2 s, as shown";
    SaveCost hidden = after_first_steps();
    add_steps(hidden, 20, 0.100, false);
    add_steps(hidden, 20, 0.099, true);
    hidden.add_save(0, 0.04);
    add_steps(hidden, 16, 0.100, false);
    EXPECT_EQ(hidden.spread(5, 0), 1);
}

TEST(TimeLimit, IsNeverNearWithoutADeadline) {
    TimeLimit limit(0, unix_now_s, begin_s);
    limit.note_save(1e9);
    EXPECT_FALSE(limit.is_near(1e12));
}

TEST(TimeLimit, KeepsNinetySeconds) {
    const TimeLimit limit(deadline, unix_now_s, begin_s);
    EXPECT_FALSE(limit.is_near(begin_s + 909));
    EXPECT_TRUE(limit.is_near(begin_s + 910));
}

TEST(TimeLimit, KeepsATenthOfAShortJob) {
    const TimeLimit limit(1'700'000'060, unix_now_s, begin_s);
    EXPECT_FALSE(limit.is_near(begin_s + 53));
    EXPECT_TRUE(limit.is_near(begin_s + 54));
}

TEST(TimeLimit, KeepsTwoTurnsAndTwoSaves) {
    TimeLimit limit(deadline, unix_now_s, begin_s);
    limit.begin_turn(begin_s);
    limit.begin_turn(begin_s + 10);
    limit.begin_turn(begin_s + 13);
    limit.note_save(30);
    limit.note_save(20);
    EXPECT_FALSE(limit.is_near(begin_s + 1000 - 90 - 60 - 20 - 1));
    EXPECT_TRUE(limit.is_near(begin_s + 1000 - 90 - 60 - 20));
}

TEST(TimeLimit, ForgetsTurnsOfLongAgo) {
    TimeLimit limit(deadline, unix_now_s, begin_s);
    double now_s = begin_s;
    limit.begin_turn(now_s);
    limit.begin_turn(now_s += 100);
    EXPECT_TRUE(limit.is_near(begin_s + 750));
    for (int turn = 0; turn < 64; ++turn) limit.begin_turn(now_s += 1);
    EXPECT_FALSE(limit.is_near(begin_s + 750));
}

TEST(TimeLimit, IsNearWhereTheDeadlineIsOver) {
    EXPECT_TRUE(TimeLimit(1'600'000'000, unix_now_s, begin_s).is_near(begin_s));
}

}  // namespace
}  // namespace lockstep
