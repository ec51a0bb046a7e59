// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/cost_model.hpp"

#include <cmath>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace {

using namespace lockstep;

constexpr double a = 1e-6, b = 1e-10;

std::vector<CostPoint> points_on(const Cost& cost) {
    std::vector<CostPoint> points;
    for (double bytes = 8; bytes <= 1 << 26; bytes *= 2)
        points.push_back({bytes, cost.seconds(bytes)});
    return points;
}

MachineCost simple_machine() {
    return {.message = {{{0, 1e9, a, b}}},
            .exchange = {{{0, 1e9, a, b}}},
            .sum = {{{0, 1e9, 0, 3e-11}}},
            .barrier_s = 5e-7};
}

TEST(Cost, UsesTheLineOfItsSizeAndPassesOverGradually) {
    const Cost cost{{{8, 100, 1, 0}, {400, 1000, 4, 0}}};
    for (const double bytes : {0, 8, 100}) EXPECT_DOUBLE_EQ(cost.seconds(bytes), 1);
    EXPECT_DOUBLE_EQ(cost.seconds(200), 2);
    for (const double bytes : {400, 1000, 5000}) EXPECT_DOUBLE_EQ(cost.seconds(bytes), 4);
}

RC_GTEST_PROP(FitCost, FindsLinesAgain, ()) {
    const auto positive = [] { return 1e-3 * *rc::gen::inRange(1, 1000); };
    const double border = std::ldexp(1.0, *rc::gen::inRange(8, 20));
    const Cost truth{{{8, border / 2, positive(), 1e-6 * positive()},
                      {border, 1 << 26, positive(), positive()}}};
    const Cost found = fit_cost(points_on(truth), 2);
    for (double bytes = 8; bytes <= 1 << 26; bytes *= 2)
        RC_ASSERT(std::abs(found.seconds(bytes) / truth.seconds(bytes) - 1) < 1e-6);
}

TEST(FitCost, HasNoNegativeConstants) {
    const std::vector<CostPoint> falling = {{8, 3}, {16, 2}, {32, 1}};
    const std::vector<CostPoint> early = {{8, 1}, {16, 3}, {32, 9}};
    EXPECT_EQ(fit_cost(falling, 2).regimes.front().b_s_per_byte, 0);
    EXPECT_EQ(fit_cost(early, 1).regimes.front().a_s, 0);
}

TEST(Predict, IsTheFormulaOfTheLiterature) {
    constexpr double n = 1 << 20, g = 3e-11;
    const MachineCost machine = simple_machine();
    const auto seconds = [&](Algorithm algorithm, int ranks) {
        return predict_s(algorithm, machine, n, ranks).value();
    };
    for (const int p : {2, 4, 8, 16}) {
        const double log = std::log2(p);
        const double ring = 2 * (p - 1) * a + 2.0 * (p - 1) / p * n * b + (p - 1.0) / p * n * g;
        EXPECT_NEAR(seconds(Algorithm::ring, p), ring, 1e-12);
        EXPECT_NEAR(seconds(Algorithm::parameter_server, p), ring, 1e-12);
        EXPECT_NEAR(seconds(Algorithm::recursive_doubling, p), log * (a + n * b + n * g), 1e-12);
        EXPECT_NEAR(seconds(Algorithm::tree, p), 2 * log * (a + n * b) + log * n * g, 1e-12);
        EXPECT_NEAR(seconds(Algorithm::shared_memory, p), 2 * 5e-7 + 2 * n / 3 * g, 1e-12);
    }
}

TEST(Predict, ShortMessagesThroughSharedMemoryNeedOneBarrier) {
    const double seconds = *predict_s(Algorithm::shared_memory, simple_machine(), 1000, 4);
    EXPECT_NEAR(seconds, 5e-7 + 3 * 1000 * 3e-11, 1e-15);
}

TEST(Predict, FoldsRanksBeyondAPowerOfTwo) {
    const MachineCost machine = simple_machine();
    const double four = *predict_s(Algorithm::recursive_doubling, machine, 1000, 4);
    const double five = *predict_s(Algorithm::recursive_doubling, machine, 1000, 5);
    EXPECT_NEAR(five - four, 2 * (a + 1000 * b) + 1000 * 3e-11, 1e-15);
}

TEST(Predict, OneRankHasNothingToDoAndOpenMpiHasNoFormula) {
    EXPECT_EQ(predict_s(Algorithm::ring, simple_machine(), 1e6, 1), 0);
    EXPECT_FALSE(predict_s(Algorithm::open_mpi, simple_machine(), 1e6, 2));
}

TEST(HoldOut, ComparesWhatHasAFormula) {
    const MachineCost machine = simple_machine();
    const double ring = *predict_s(Algorithm::ring, machine, 4096, 2);
    Measurements measured;
    measured.rows = {{Algorithm::ring, DataType::float32, 4096, 1024, ring / 2, ring, {}},
                     {Algorithm::open_mpi, DataType::float32, 4096, 1024, ring, ring, {}},
                     {Algorithm::ring, DataType::int64, 4096, 512, ring, ring, {}},
                     {Algorithm::shared_memory, DataType::float32, 4096, 1024, ring, ring, {}}};
    const auto lent = hold_out(machine, measured, BufferPlace::lent, 2);
    const auto own = hold_out(machine, measured, BufferPlace::own, 2);
    EXPECT_EQ(lent.size(), 2u);
    ASSERT_EQ(own.size(), 1u);
    EXPECT_NEAR(own[0].error(), 1, 1e-9);
    EXPECT_NEAR(median_error(own), 1, 1e-9);
    EXPECT_EQ(median_error({}), 0);
}

}  // namespace
