// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/agree.hpp"
#include "lockstep/comm/communicator.hpp"

#include <array>

#include <gtest/gtest.h>

namespace {

using lockstep::Communicator;

TEST(NullCommunicator, IsOneRankWithoutMpi) {
    const Communicator ranks = Communicator::world();
    EXPECT_EQ(ranks.rank(), 0);
    EXPECT_EQ(ranks.size(), 1);
    EXPECT_TRUE(ranks.is_root());
    EXPECT_EQ(ranks.handle(), MPI_COMM_NULL);
    EXPECT_EQ(ranks.duplicate().size(), 1);
    EXPECT_EQ(ranks.split_by_node().size(), 1);
}

TEST(NullCommunicator, GivesBackWhatItIsGiven) {
    const Communicator ranks;
    std::array<std::int64_t, 2> numbers = {3, -4};
    ranks.barrier();
    ranks.barrier_asleep();
    ranks.all_reduce_sum(numbers);
    ranks.all_reduce_max(numbers);
    EXPECT_EQ(numbers, (std::array<std::int64_t, 2>{3, -4}));
    EXPECT_EQ(ranks.broadcast("text"), "text");
    EXPECT_EQ(ranks.all_gather("text"), std::vector<std::string>{"text"});
}

TEST(NullCommunicator, AgreesWithItself) {
    const Communicator ranks;
    EXPECT_EQ(lockstep::agree(ranks, [] { return 7; }), 7);
    EXPECT_EQ(lockstep::from_root(ranks, [] { return std::string("x"); }), "x");
    try {
        lockstep::agree(ranks, [] { throw lockstep::Error("E201", "gone"); });
        ADD_FAILURE();
    } catch (const lockstep::AgreedError& error) {
        EXPECT_EQ(error.code(), "E201");
        EXPECT_EQ(error.ranks(), "");
        EXPECT_TRUE(error.speaks());
    }
}

TEST(NullCommunicator, EndsTheProcessWithTheCode) {
    EXPECT_EXIT(Communicator().abort(77), testing::ExitedWithCode(77), "");
}

TEST(LaunchedByMpi, IsFalseForAProgramStartedByHand) {
    EXPECT_FALSE(lockstep::launched_by_mpi());
}

}  // namespace
