// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/measure.hpp"

#include "support/mpi_test.hpp"

#include <set>

#include <gmock/gmock.h>

namespace {

using namespace lockstep;
using lockstep::test::ranks;

MeasurePlan small_plan() {
    MeasurePlan plan;
    plan.sizes = {8, 4096, 100'000};
    plan.methods.assign(all_sum_methods().begin(), all_sum_methods().end());
    plan.iterations = 2;
    plan.rounds = 2;
    plan.warmup = 1;
    plan.checks = 2;
    return plan;
}

void expect_exact_rows(const Measurements& measured, const MeasurePlan& plan) {
    ASSERT_EQ(measured.rows.size(), plan.sizes.size() * plan.methods.size());
    std::size_t i = 0;
    for (const std::size_t bytes : plan.sizes)
        for (const SumMethod method : plan.methods) {
            const Measurement& row = measured.rows[i++];
            EXPECT_EQ(row.bytes, bytes);
            EXPECT_EQ(row.method, method);
            EXPECT_EQ(row.wrong, 0u) << name_of(method) << " " << bytes;
            EXPECT_LE(row.best_s, row.median_s);
        }
}

TEST(Measure, ChecksAndTimesEverythingAsked) {
    const MeasurePlan plan = small_plan();
    const Measurements measured = measure(ranks(), plan);
    expect_exact_rows(measured, plan);
    EXPECT_EQ(measured.transport, ranks().size() == 1 ? "one rank" : "shared memory");
    EXPECT_EQ(measured.limits.size(), ranks().size() == 1 ? 0u : plan.sizes.size());
}

TEST(Measure, SaysNothingAboutSumsThatWereNotChecked) {
    MeasurePlan plan = small_plan();
    plan.checks = 0;
    plan.methods = {SumMethod::open_mpi};
    for (const Measurement& row : measure(ranks(), plan).rows) EXPECT_FALSE(row.wrong);
}

TEST(Measure, FillsABlockWithAsManyAsFit) {
    MeasurePlan plan = small_plan();
    plan.iterations = 0;
    plan.block_s = 1e-4;
    std::size_t announced = 0;
    plan.on_size = [&](std::size_t) { ++announced; };
    expect_exact_rows(measure(ranks(), plan), plan);
    EXPECT_EQ(announced, plan.sizes.size());
}

TEST(WorstOf, TakesTheSlowestGroupAndAllWrongElements) {
    Measurements mine;
    const auto rank = static_cast<std::uint64_t>(ranks().rank());
    mine.rows = {{SumMethod::ring, 8, 1e-6, 2e-6, rank}, {SumMethod::tree, 8, 1e-6, 2e-6, {}}};
    mine.rows[0].best_s *= ranks().rank() + 1;
    const Measurements worst = worst_of(ranks(), mine);
    const int size = ranks().size();
    EXPECT_NEAR(worst.rows[0].best_s, 1e-6 * size, 1e-11);
    EXPECT_NEAR(worst.rows[0].median_s, 2e-6, 1e-11);
    EXPECT_EQ(worst.rows[0].wrong, static_cast<std::uint64_t>(size * (size - 1) / 2));
    EXPECT_FALSE(worst.rows[1].wrong);
}

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

TEST(LinkProbe, MeasuresEveryOtherRankAndKnowsTheThreadLevel) {
    const auto speeds = measure_link_speeds(test::ranks(), 4096);
    std::set<int> peers;
    for (const LinkSpeed& each : speeds) {
        EXPECT_GT(each.bytes_per_s, 0);
        peers.insert(each.peer);
    }
    EXPECT_EQ(static_cast<int>(peers.size()), test::ranks().size() - 1);
    EXPECT_FALSE(peers.contains(test::ranks().rank()));
    EXPECT_GE(mpi_thread_level(), 2);
}

}  // namespace
