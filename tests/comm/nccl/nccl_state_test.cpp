// SPDX-License-Identifier: Apache-2.0
#include "nccl/nccl_inside.hpp"

#include <array>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace {

using enum lockstep::NcclState;
using lockstep::may_follow;
using lockstep::NcclState;
using lockstep::unique_id_count;
using lockstep::unique_id_makers;

constexpr std::array all_states = {
    unset, initializing, ready, failed, aborting, aborted, finalizing, finalized, destroyed};

TEST(NcclState, EndsInAbortedOrDestroyedOnly) {
    for (const NcclState from : all_states) {
        int ways = 0;
        for (const NcclState to : all_states) ways += may_follow(from, to) ? 1 : 0;
        EXPECT_EQ(ways == 0, from == aborted || from == destroyed) << name_of(from);
    }
}

TEST(NcclState, NeverGoesBackToReadyOrStaysWhereItIs) {
    for (const NcclState from : all_states) {
        EXPECT_FALSE(may_follow(from, from)) << name_of(from);
        EXPECT_EQ(may_follow(from, ready), from == initializing) << name_of(from);
        EXPECT_FALSE(may_follow(from, unset)) << name_of(from);
    }
}

TEST(NcclState, CanBeAbortedFromEveryStateWithACommunicator) {
    for (const NcclState from : {initializing, ready, failed, finalizing, finalized})
        EXPECT_TRUE(may_follow(from, aborting)) << name_of(from);
    for (const NcclState from : {unset, aborting, aborted, destroyed})
        EXPECT_FALSE(may_follow(from, aborting)) << name_of(from);
}

TEST(NcclState, AFailureIsNeverFinalized) {
    EXPECT_FALSE(may_follow(failed, finalizing));
    EXPECT_FALSE(may_follow(failed, ready));
    EXPECT_FALSE(may_follow(aborted, finalizing));
}

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
