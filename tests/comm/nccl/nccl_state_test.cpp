// SPDX-License-Identifier: Apache-2.0
#include "nccl/nccl_inside.hpp"

#include <array>

#include <gtest/gtest.h>

namespace {

using lockstep::may_follow;
using lockstep::NcclState;
using enum lockstep::NcclState;

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

}  // namespace
