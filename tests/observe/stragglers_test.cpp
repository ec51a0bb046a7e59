// SPDX-License-Identifier: Apache-2.0
#include "lockstep/observe/stragglers.hpp"

#include <algorithm>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

constexpr std::int64_t steps_of_run = 400;

/// Each step's time of rank `rank`, but for its waiting.
using OwnTimes = std::function<PhaseSeconds(int rank, std::int64_t step)>;

double& at(PhaseSeconds& phases, Phase phase) {
    return phases[static_cast<std::size_t>(phase)];
}

/// 10 ms: what an even run spends.
PhaseSeconds even_step() {
    PhaseSeconds phases{};
    at(phases, Phase::data) = 0.5e-3;
    at(phases, Phase::forward) = 3e-3;
    at(phases, Phase::backward) = 5e-3;
    at(phases, Phase::comm) = 0.5e-3;
    at(phases, Phase::update) = 1e-3;
    return phases;
}

double sum_of(const PhaseSeconds& phases) {
    double sum = 0;
    for (const double seconds : phases) sum += seconds;
    return sum;
}

/// Where the slowest rank of each step is waited for in `waits`.
struct TestRun {
    TestRun(int ranks, const OwnTimes& times, Phase waits = Phase::wait)
        : of(static_cast<std::size_t>(ranks)) {
        for (std::int64_t step = 1; step <= steps_of_run; ++step) {
            double longest_s = 0;
            for (int rank = 0; rank < ranks; ++rank)
                longest_s = std::max(longest_s, sum_of(times(rank, step)));
            for (int rank = 0; rank < ranks; ++rank) {
                StepBudget budget{.step = step, .phases = times(rank, step)};
                at(budget.phases, waits) += longest_s - sum_of(budget.phases);
                of[static_cast<std::size_t>(rank)].push_back(budget);
            }
        }
    }

    std::vector<Straggler> stragglers(const std::vector<int>& leaves = {}) const {
        std::vector<RankSteps> ranks;
        for (std::size_t r = 0; r < of.size(); ++r)
            ranks.push_back({.rank = static_cast<int>(r),
                             .host = r < 2 ? "n1" : "n2",
                             .steps = of[r],
                             .leaves = leaves.empty() ? 0 : leaves[r],
                             .data_bound = "I/O"});
        return find_stragglers(ranks);
    }

    std::vector<std::vector<StepBudget>> of;
};

/// Rank 2 spends `more` seconds more on `phase` in every `period`th step.
OwnTimes slow_rank(Phase phase, double more, std::int64_t period = 1) {
    return [=](int rank, std::int64_t step) {
        PhaseSeconds phases = even_step();
        if (rank == 2 && step % period == 0) at(phases, phase) += more;
        return phases;
    };
}

TEST(Stragglers, AreNamedWithTheirCause) {
    const std::vector<std::pair<Phase, StragglerCause>> causes = {
        {Phase::data, StragglerCause::data},
        {Phase::copy, StragglerCause::copy},
        {Phase::forward, StragglerCause::cores},
        {Phase::update, StragglerCause::cores},
        {Phase::comm, StragglerCause::link},
        {Phase::checkpoint, StragglerCause::files},
        {Phase::other, StragglerCause::other}};
    for (const auto& [phase, cause] : causes) {
        const auto found = TestRun(4, slow_rank(phase, 2e-3)).stragglers();
        ASSERT_EQ(found.size(), 1u) << phase_name(phase);
        EXPECT_EQ(found[0].rank, 2);
        EXPECT_EQ(found[0].host, "n2");
        EXPECT_EQ(cause_name(found[0].cause), cause_name(cause));
        EXPECT_NEAR(found[0].lost_s, 2e-3, 1e-6);
        EXPECT_NEAR(found[0].share, 1.0 / 6, 1e-3);
        EXPECT_EQ(found[0].persistence, 1);
    }
}

TEST(Stragglers, AreNoneWhereRanksAreAlike) {
    EXPECT_TRUE(TestRun(4, [](int, std::int64_t) { return even_step(); }).stragglers().empty());
    EXPECT_TRUE(TestRun(1, slow_rank(Phase::data, 1)).stragglers().empty());
    EXPECT_TRUE(find_stragglers(std::span<const RankSteps>{}).empty());
}

TEST(Stragglers, AreNotMadeByJitter) {
    const auto jitter = [](int rank, std::int64_t step) {
        PhaseSeconds phases = even_step();
        if ((step * 7 + rank * 3) % 4 == 0) at(phases, Phase::backward) += 20e-3;
        return phases;
    };
    EXPECT_TRUE(TestRun(4, jitter).stragglers().empty());
    EXPECT_TRUE(TestRun(2, jitter).stragglers().empty());
}

TEST(Stragglers, AreNotMadeByOneHiccup) {
    const auto hiccup = slow_rank(Phase::data, 5, 300);
    EXPECT_TRUE(TestRun(4, hiccup).stragglers().empty());
}

// Of ten steps one is far too long: what a quota does.
TEST(Stragglers, AreFoundWhereFewStepsAreSlow) {
    const auto found = TestRun(4, slow_rank(Phase::backward, 40e-3, 10)).stragglers();
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].cause, StragglerCause::cores);
    EXPECT_NEAR(found[0].lost_s, 4e-3, 1e-4);
}

// Blocks of files are read at once: few steps wait for them, and long.
TEST(Stragglers, WaitForTheirDataInFewSteps) {
    const auto found = TestRun(4, slow_rank(Phase::data, 0.3, 30)).stragglers();
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].cause, StragglerCause::data);
}

TEST(Stragglers, SaveSlowlyThoughStepsWithoutASaveAreAlike) {
    const auto found = TestRun(3, slow_rank(Phase::checkpoint, 0.5, 100)).stragglers();
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].cause, StragglerCause::files);
    EXPECT_EQ(found[0].persistence, 1);
}

TEST(Stragglers, MayBeHalfOfTheRanks) {
    const auto slow_node = [](int rank, std::int64_t) {
        PhaseSeconds phases = even_step();
        if (rank >= 2)
            for (double& seconds : phases) seconds *= rank == 3 ? 1.6 : 1.5;
        return phases;
    };
    const auto found = TestRun(4, slow_node).stragglers();
    ASSERT_EQ(found.size(), 2u);
    EXPECT_EQ(found[0].rank, 3);
    EXPECT_EQ(found[1].rank, 2);
    EXPECT_EQ(found[0].cause, StragglerCause::cores);
    EXPECT_NE(stragglers_text(found).find("; slow, too: rank 2"), std::string::npos);
}

// GPUs wait inside their sums: own times are alike, and the slow rank's sums are the shortest.
TEST(Stragglers, AreFoundWhereWaitingIsPartOfSums) {
    const auto found = TestRun(4, slow_rank(Phase::forward, 3e-3), Phase::comm).stragglers();
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].rank, 2);
    EXPECT_EQ(found[0].cause, StragglerCause::cores);
}

TEST(Stragglers, ComputeMoreLeaves) {
    const TestRun run(3, slow_rank(Phase::backward, 4e-3));
    EXPECT_EQ(run.stragglers({1, 1, 2}).at(0).cause, StragglerCause::more);
    EXPECT_EQ(run.stragglers({2, 2, 2}).at(0).cause, StragglerCause::cores);
}

TEST(Stragglers, AreOfTheStepsThatAllRanksHave) {
    TestRun run(3, slow_rank(Phase::data, 2e-3));
    run.of[0].erase(run.of[0].begin(), run.of[0].begin() + 100);
    run.of[1].resize(200);
    const auto found = run.stragglers();
    ASSERT_EQ(found.size(), 1u);
    EXPECT_NEAR(found[0].lost_s, 2e-3, 1e-6);
    run.of[1].resize(100);
    EXPECT_TRUE(run.stragglers().empty());
}

TEST(Stragglers, TakeTheFirstStepForWarmingUp) {
    const auto first = [](int rank, std::int64_t step) {
        PhaseSeconds phases = even_step();
        if (rank == 1 && step == 1) at(phases, Phase::other) += 1000;
        return phases;
    };
    EXPECT_TRUE(TestRun(2, first).stragglers().empty());
}

TEST(Stragglers, AreToldInOneSentence) {
    const auto found = TestRun(3, slow_rank(Phase::data, 2e-3)).stragglers();
    EXPECT_EQ(stragglers_text(found),
              "rank 2 on n2 holds the others up by 2ms a step (17 %): its data are slow (I/O)");
    EXPECT_NE(advice(found.at(0)).find("bench io"), std::string::npos);
    EXPECT_EQ(stragglers_text({}), "");
}

TEST(Stragglers, OfARunKnowHowManyLeavesRanksHave) {
    const TestRun steps(3, slow_rank(Phase::backward, 4e-3));
    RunFigures run;
    for (int rank = 0; rank < 3; ++rank)
        run.ranks.push_back({.facts = {.rank = rank, .host = "n1"},
                             .steps = steps.of[static_cast<std::size_t>(rank)]});
    run.record.contract = {{"virtual_ranks", 4}};  // 1, 1 and 2 leaves
    EXPECT_EQ(find_stragglers(run).at(0).cause, StragglerCause::more);
    run.record.contract = {{"virtual_ranks", 6}};
    EXPECT_EQ(find_stragglers(run).at(0).cause, StragglerCause::cores);
}

}  // namespace
}  // namespace lockstep
