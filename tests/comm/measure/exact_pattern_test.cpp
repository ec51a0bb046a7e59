// SPDX-License-Identifier: Apache-2.0
#include "measure/textbook.hpp"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace {

using namespace lockstep;

using Floats = std::vector<float>;

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

TEST(ExactPattern, SeesARankThatWasLeftOut) {
    constexpr std::size_t count = 4096;
    for (int ranks = 2; ranks <= 8; ++ranks)
        EXPECT_GT(count_wrong(filled(count, 0, ranks, 0), ranks, 0), count / 2);
}

TEST(ExactPattern, SeesAnOldRound) {
    EXPECT_GT(count_wrong(summed(4096, 3, 0), 3, 1), 1000u);
}

TEST(ExactPattern, SeesSwappedHalves) {
    Floats sum = summed(4096, 2, 0);
    std::rotate(sum.begin(), sum.begin() + 2048, sum.end());
    EXPECT_GT(count_wrong(sum, 2, 0), 2048u);
}

}  // namespace
