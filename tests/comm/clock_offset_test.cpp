// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/measure.hpp"
#include "lockstep/core/clock.hpp"

#include "support/mpi_test.hpp"

#include <cmath>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using test::ranks;

// All ranks of a test share one true clock: what a rank's clock is ahead is known exactly.
double skew_s(int rank) {
    return rank == 0 ? 0 : 100.0 * rank + 0.25;
}

ClockOffset measured(const Communicator& node) {
    return measure_clock_offset(ranks(), node, [] { return now_s() + skew_s(ranks().rank()); });
}

TEST(ClockOffset, FindsAnInjectedSkewWithinItsOwnBound) {
    const ClockOffset offset = measured(Communicator());  // each rank is a node of its own
    EXPECT_NEAR(offset.ahead_s, skew_s(ranks().rank()), offset.error_s + 1e-9);
    EXPECT_LT(offset.error_s, 0.1);
    EXPECT_EQ(offset.error_s > 0, !ranks().is_root());
}

// A skew that nobody injected would be found here as well.
TEST(ClockOffset, FindsNoneWhereClocksAgree) {
    const ClockOffset offset = measure_clock_offset(ranks(), Communicator(), now_s);
    EXPECT_LE(std::abs(offset.ahead_s), offset.error_s + 1e-9);
    EXPECT_LT(offset.error_s, 0.1);
}

TEST(ClockOffset, IsOneForAllRanksOfANode) {
    const Communicator node = ranks().split(0);
    const ClockOffset offset = measured(node);
    EXPECT_EQ(offset.ahead_s, 0);
    EXPECT_EQ(offset.error_s, 0);
}

// The second node's first rank measures; the others of that node have its clock and its answer.
TEST(ClockOffset, IsMeasuredByTheFirstRankOfANode) {
    const int color = ranks().rank() == 0 ? 0 : 1;
    const Communicator node = ranks().split(color);
    const ClockOffset offset =
        measure_clock_offset(ranks(), node, [&] { return now_s() + 7.0 * color; });
    EXPECT_NEAR(offset.ahead_s, 7.0 * color, offset.error_s + 1e-9);
}

}  // namespace
}  // namespace lockstep
