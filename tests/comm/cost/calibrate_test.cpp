// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/cost_model.hpp"

#include "support/mpi_test.hpp"

#include <gtest/gtest.h>

namespace {

using namespace lockstep;
using lockstep::test::ranks;

// How near the constants are to the truth depends on what else the machine does: here only that
// they make sense.
TEST(Calibrate, GivesCostsThatGrowWithSize) {
    const MachineCost cost = calibrate(ranks());
    EXPECT_GT(cost.barrier_s, 0);
    for (const Cost* each : {&cost.message, &cost.exchange, &cost.sum}) {
        EXPECT_GT(each->seconds(1 << 26), each->seconds(1 << 12));
        for (const Cost::Regime& regime : each->regimes) {
            EXPECT_GE(regime.a_s, 0);
            EXPECT_GE(regime.b_s_per_byte, 0);
        }
    }
}

}  // namespace
