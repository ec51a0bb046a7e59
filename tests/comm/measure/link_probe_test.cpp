// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/measure.hpp"

#include "support/mpi_test.hpp"

#include <set>

#include <gmock/gmock.h>

namespace lockstep {
namespace {

TEST(Tournament, LetsEveryPairMeetOnce) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
        std::set<std::pair<int, int>> met;
        for (int round = 0; round < tournament_rounds(ranks); ++round)
            for (int rank = 0; rank < ranks; ++rank) {
                const int peer = tournament_peer(rank, round, ranks);
                if (peer < 0) continue;
                EXPECT_EQ(tournament_peer(peer, round, ranks), rank) << ranks << " " << round;
                if (rank < peer) {
                    EXPECT_TRUE(met.emplace(rank, peer).second);
                }
            }
        EXPECT_EQ(met.size(), static_cast<std::size_t>(ranks * (ranks - 1) / 2)) << ranks;
    }
}

TEST(LinkProbe, MeasuresEveryOtherRank) {
    const auto speeds = measure_link_speeds(test::ranks(), 4096);
    std::set<int> peers;
    for (const LinkSpeed& each : speeds) {
        EXPECT_GT(each.bytes_per_s, 0);
        peers.insert(each.peer);
    }
    EXPECT_EQ(static_cast<int>(peers.size()), test::ranks().size() - 1);
    EXPECT_FALSE(peers.contains(test::ranks().rank()));
}

TEST(LinkProbe, KnowsTheThreadLevel) {
    EXPECT_GE(mpi_thread_level(), 2);
}

}  // namespace
}  // namespace lockstep
