// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/agree.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/clock.hpp"

#include "base/spin.hpp"

#include <array>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace {

using namespace lockstep;

TEST(NullCommunicator, IsOneRankWithoutMpi) {
    const Communicator ranks = Communicator::world();
    EXPECT_EQ(ranks.rank(), 0);
    EXPECT_EQ(ranks.size(), 1);
    EXPECT_TRUE(ranks.is_root());
    EXPECT_EQ(ranks.handle(), MPI_COMM_NULL);
    EXPECT_EQ(ranks.duplicate().size(), 1);
    EXPECT_EQ(ranks.split_by_node().size(), 1);
    EXPECT_FALSE(launched_by_mpi());
    EXPECT_EXIT(Communicator().abort(77), testing::ExitedWithCode(77), "");
}

TEST(NullCommunicator, GivesBackWhatItIsGivenAndAgreesWithItself) {
    const Communicator ranks;
    std::array<std::int64_t, 2> numbers = {3, -4};
    ranks.barrier();
    ranks.barrier_asleep();
    ranks.all_reduce_sum(numbers);
    ranks.all_reduce_max(numbers);
    EXPECT_EQ(numbers, (std::array<std::int64_t, 2>{3, -4}));
    EXPECT_EQ(ranks.broadcast("text"), "text");
    EXPECT_EQ(ranks.all_gather("text"), std::vector<std::string>{"text"});
    EXPECT_EQ(agree(ranks, [] { return 7; }), 7);
    EXPECT_EQ(from_root(ranks, [] { return std::string("x"); }), "x");
    try {
        agree(ranks, [] { throw Error("E201", "gone"); });
        ADD_FAILURE();
    } catch (const AgreedError& error) {
        EXPECT_EQ(error.code(), "E201");
        EXPECT_EQ(error.ranks(), "");
        EXPECT_TRUE(error.speaks());
    }
}

/// Threads stand in for the ranks.
struct Flags {
    struct alignas(64) Line {
        std::byte bytes[64] = {};
    };
    std::vector<Line> lines;
    std::vector<RankFlags> of_rank;

    explicit Flags(int ranks) : lines(RankFlags::bytes_for(ranks) / sizeof(Line)) {
        for (int rank = 0; rank < ranks; ++rank)
            of_rank.emplace_back(lines.front().bytes, rank, ranks);
    }
};

TEST(RankFlags, NameWhoHasNotComeThatFar) {
    Flags flags(4);
    for (const int rank : {0, 1, 2, 3}) flags.of_rank[static_cast<std::size_t>(rank)].raise();
    EXPECT_TRUE(flags.of_rank[0].all_reached(1));
    flags.of_rank[2].raise();
    EXPECT_EQ(flags.of_rank[0].missing(2), std::vector<int>({0, 1, 3}));
    EXPECT_FALSE(flags.of_rank[2].all_reached(2));
}

TEST(RankFlags, StopWaitingAtTheLimit) {
    Flags flags(3);
    const auto mine = flags.of_rank[1].raise();
    flags.of_rank[0].raise();
    EXPECT_FALSE(flags.of_rank[1].wait(mine, 0.01));
    flags.of_rank[2].raise();
    EXPECT_TRUE(flags.of_rank[1].wait(mine, 0.01));
}

TEST(RankFlags, LeaveTheirCoreToOthersInALongWait) {
    constexpr double wait_s = 0.5;
    Flags flags(2);
    const double begin_s = thread_processor_s();
    EXPECT_FALSE(flags.of_rank[0].wait(flags.of_rank[0].raise(), wait_s));
    EXPECT_LT(thread_processor_s() - begin_s, wait_s / 3);
}

TEST(RankFlags, ShowWhatWasWrittenBeforeThem) {
    constexpr int ranks = 4, apart = 16;  // ints of a cache line
    Flags flags(ranks);
    std::vector<std::thread> threads;
    std::vector<int> wrong(ranks), notes(ranks * apart);
    for (int rank = 0; rank < ranks; ++rank) {
        threads.emplace_back([&, rank] {
            RankFlags& mine = flags.of_rank[static_cast<std::size_t>(rank)];
            for (int round = 1; round <= 1000; ++round) {
                notes[static_cast<std::size_t>(rank * apart)] = round * 10 + rank;
                mine.wait(mine.raise());
                for (int peer = 0; peer < ranks; ++peer)
                    wrong[static_cast<std::size_t>(rank)] +=
                        notes[static_cast<std::size_t>(peer * apart)] != round * 10 + peer;
                mine.wait(mine.raise());
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, std::vector<int>(ranks));
}

}  // namespace
