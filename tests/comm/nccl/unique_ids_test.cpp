// SPDX-License-Identifier: Apache-2.0
#include "nccl/nccl_inside.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace {

using lockstep::unique_id_count;
using lockstep::unique_id_makers;

RC_GTEST_PROP(UniqueIds, AreAsManyAsTheirMakersAndEvenlySpread, ()) {
    const int ranks = *rc::gen::inRange(1, 20000);
    const int ids = unique_id_count(ranks, true);
    const auto makers = unique_id_makers(ranks, ids);
    RC_ASSERT(static_cast<int>(makers.size()) == ids);
    RC_ASSERT(makers.front() == 0);
    for (std::size_t i = 0; i < makers.size(); ++i) {
        const int end = i + 1 < makers.size() ? makers[i + 1] : ranks;
        const int served = end - makers[i];
        RC_ASSERT(served == ranks / ids || served == ranks / ids + 1);
        if (ids > 1) RC_ASSERT(served <= 128);
    }
}

TEST(UniqueIds, AreOneUpTo256RanksAndForOldLibraries) {
    EXPECT_EQ(unique_id_count(1, true), 1);
    EXPECT_EQ(unique_id_count(256, true), 1);
    EXPECT_EQ(unique_id_count(257, true), 3);
    EXPECT_EQ(unique_id_count(4096, false), 1);
    EXPECT_EQ(unique_id_makers(7, 3), (std::vector<int>{0, 3, 5}));
}

}  // namespace
