// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/exact_sum.hpp"
#include "lockstep/comm/flat_layout.hpp"

#include "comm/reference.hpp"
#include "support/mpi_test.hpp"

#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include <gtest/gtest.h>

namespace {

using namespace lockstep;
using lockstep::test::hard_value;
using lockstep::test::ranks;

const std::vector<std::size_t> counts = {9000, 40, 16, 20000, 1, 0, 700};

/// The norm of the same gradients when `parts` ranks own them; this rank looks after every part
/// whose number leaves its own as the remainder.
double norm_cut_in(int parts, BucketLimits limits, float one_value) {
    const FlatLayout layout(counts, 30, limits);
    std::vector<float> values(layout.size());
    for (std::size_t tensor = 0; tensor < counts.size(); ++tensor)
        for (std::size_t i = 0; i < counts[tensor]; ++i)
            values[layout.tensor(tensor).begin + i] = hard_value(tensor, 0, i);
    values[layout.tensor(0).begin + 17] = one_value;
    ExactSum sum;
    for (std::size_t b = 0; b < layout.state_bucket(); ++b)
        for (int part = ranks().rank(); part < parts; part += ranks().size()) {
            const FloatRange stripe = layout.stripe(b, part, parts);
            sum.add_squares(std::span(values).subspan(stripe.begin, stripe.size()));
        }
    ranks().all_reduce_sum(sum.words());
    return std::sqrt(sum.value());
}

TEST(GlobalNorm, HasTheSameBitsHoweverManyOwnIt) {
    ExactSum sum;
    for (std::size_t tensor = 0; tensor < counts.size(); ++tensor)
        for (std::size_t i = 0; i < counts[tensor]; ++i) {
            const float value = tensor == 0 && i == 17 ? 1.5f : hard_value(tensor, 0, i);
            sum.add_squares({&value, 1});
        }
    const double expected = std::sqrt(sum.value());
    for (int parts = 1; parts <= 9; ++parts)
        for (const std::size_t limit : {64u, 5000u, 1u << 25})
            EXPECT_EQ(norm_cut_in(parts, {limit, limit}, 1.5f), expected) << parts;
}

TEST(GlobalNorm, IsNotFiniteIfOneValueOfOneRankIsNot) {
    EXPECT_TRUE(std::isnan(norm_cut_in(5, {}, std::numeric_limits<float>::quiet_NaN())));
    EXPECT_TRUE(std::isinf(norm_cut_in(5, {}, -std::numeric_limits<float>::infinity())));
}

TEST(ExactSum, OverRanksIsThatOfWords) {
    std::vector<ExactSum> sums(3);
    std::vector<double> expected(3);
    for (int rank = 0; rank < ranks().size(); ++rank)
        for (std::size_t i = 0; i < 2; ++i) {
            const auto value = static_cast<float>(rank + 1) * (i == 0 ? 1 : 1e-20f);
            expected[i] += static_cast<double>(value) * value;
            if (rank == ranks().rank()) sums[i].add_squares({&value, 1});
        }
    for (ExactSum& sum : sums) ranks().all_reduce_sum(sum.words());
    for (std::size_t i = 0; i < 3; ++i) EXPECT_DOUBLE_EQ(sums[i].value(), expected[i]) << i;
}

}  // namespace
