// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/stragglers.hpp"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include <rapidcheck/gtest.h>

namespace lockstep {
namespace {

constexpr std::int64_t steps_of_run = 400;

/// Each step's time of rank `rank`, but for its waiting.
using OwnTimes = std::function<PhaseSeconds(int rank, std::int64_t step)>;

/// 10 ms: what an even run spends.
PhaseSeconds even_step() {
    PhaseSeconds phases{};
    phases[Phase::data] = 0.5e-3;
    phases[Phase::forward] = 3e-3;
    phases[Phase::backward] = 5e-3;
    phases[Phase::comm] = 0.5e-3;
    phases[Phase::update] = 1e-3;
    return phases;
}

/// Where the slowest rank of each step is waited for in `waits`.
struct TestRun {
    TestRun(int ranks, const OwnTimes& times, Phase waits = Phase::wait)
        : of(static_cast<std::size_t>(ranks)), links(of.size()) {
        for (std::int64_t step = 1; step <= steps_of_run; ++step) {
            double longest_s = 0;
            for (int rank = 0; rank < ranks; ++rank)
                longest_s = std::max(longest_s, times(rank, step).sum());
            for (int rank = 0; rank < ranks; ++rank) {
                StepBudget budget{.step = step, .phases = times(rank, step)};
                budget.phases[waits] += longest_s - budget.wall_s();
                of[static_cast<std::size_t>(rank)].push_back(budget);
            }
        }
    }

    std::vector<Straggler> stragglers(const std::vector<int>& leaves = {}) const {
        std::vector<RankSteps> ranks;
        for (std::size_t r = 0; r < of.size(); ++r)
            ranks.push_back({.rank = static_cast<int>(r),
                             .host = "n" + std::to_string(r),
                             .steps = of[r],
                             .leaves = leaves.empty() ? 0 : leaves[r],
                             .data_bound = "I/O",
                             .links = links[r]});
        return find_stragglers(ranks);
    }

    std::vector<std::vector<StepBudget>> of;
    std::vector<std::vector<LinkTimes>> links;
};

/// Rank 2 spends `more` seconds more on `phase` in every `period`th step.
OwnTimes slow_rank(Phase phase, double more, std::int64_t period = 1) {
    return [=](int rank, std::int64_t step) {
        PhaseSeconds phases = even_step();
        if (rank == 2 && step % period == 0) phases[phase] += more;
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

TEST(Stragglers, AreNoneWhereRanksAreAlikeOrOnlyTheFirstStepIsLong) {
    EXPECT_TRUE(TestRun(4, [](int, std::int64_t) { return even_step(); }).stragglers().empty());
    EXPECT_TRUE(TestRun(1, slow_rank(Phase::data, 1)).stragglers().empty());
    EXPECT_TRUE(find_stragglers(std::span<const RankSteps>{}).empty());
    const auto warms_up = [](int rank, std::int64_t step) {
        PhaseSeconds phases = even_step();
        if (rank == 1 && step == 1) phases[Phase::other] += 1000;
        return phases;
    };
    EXPECT_TRUE(TestRun(2, warms_up).stragglers().empty());
}

TEST(Stragglers, AreNotMadeByJitterOrAHiccup) {
    const auto jitter = [](int rank, std::int64_t step) {
        PhaseSeconds phases = even_step();
        if ((step * 7 + rank * 3) % 4 == 0) phases[Phase::backward] += 20e-3;
        return phases;
    };
    EXPECT_TRUE(TestRun(4, jitter).stragglers().empty());
    EXPECT_TRUE(TestRun(2, jitter).stragglers().empty());
    EXPECT_TRUE(TestRun(4, slow_rank(Phase::data, 5, 300)).stragglers().empty()) << "one hiccup";
}

// Of ten steps one is far too long, which is what a quota does. Blocks of files are read at once:
// few steps wait for them, and long. Steps without a save are alike.
TEST(Stragglers, AreFoundWhereFewStepsAreSlow) {
    const auto quota = TestRun(4, slow_rank(Phase::backward, 40e-3, 10)).stragglers();
    const auto data = TestRun(4, slow_rank(Phase::data, 0.3, 30)).stragglers();
    const auto saves = TestRun(3, slow_rank(Phase::checkpoint, 0.5, 100)).stragglers();
    for (const auto& found : {quota, data, saves}) ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(quota[0].cause, StragglerCause::cores);
    EXPECT_NEAR(quota[0].lost_s, 4e-3, 1e-4);
    EXPECT_EQ(data[0].cause, StragglerCause::data);
    EXPECT_EQ(saves[0].cause, StragglerCause::files);
    EXPECT_EQ(saves[0].persistence, 1);
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

TEST(Stragglers, AreToldInOneSentence) {
    const auto found = TestRun(3, slow_rank(Phase::data, 2e-3)).stragglers();
    EXPECT_EQ(stragglers_text(found),
              "rank 2 on n2 holds the others up by 2ms a step (17 %): its batches come late (I/O)");
    EXPECT_NE(advice(found.at(0)).find("bench io"), std::string::npos);
    EXPECT_EQ(stragglers_text({}), "");
}

/// Four ranks on nodes of one each, and what each received: node 2 gets 1/20 of what the others do.
class SlowNode : public testing::Test {
  protected:
    SlowNode() : links_(4) {
        for (int to = 0; to < 4; ++to)
            for (const int distance : {1, 2}) {
                const bool is_slow = to == 2 || (to ^ distance) == 2;
                links_[static_cast<std::size_t>(to)].push_back({.from = to ^ distance,
                                                                .messages = 10,
                                                                .bytes = 1'000'000'000,
                                                                .seconds = is_slow ? 20.0 : 1.0});
            }
    }

    /// All ranks wait `wait_s` in each step of 10 ms more, rank `late` not.
    std::vector<Straggler> found(double wait_s, int late = -1) const {
        TestRun run(4, [=](int rank, std::int64_t) {
            PhaseSeconds phases = even_step();
            phases[Phase::wait] += wait_s;
            if (rank == late) phases[Phase::backward] += 5e-3;
            return phases;
        });
        run.links = links_;
        return run.stragglers();
    }

    std::vector<std::vector<LinkTimes>> links_;
};

TEST_F(SlowNode, IsNamedThoughAllRanksWaitAlike) {
    const auto stragglers = found(10e-3);
    ASSERT_EQ(stragglers.size(), 1u);
    EXPECT_EQ(stragglers[0].rank, 2);
    EXPECT_EQ(stragglers[0].host, "n2");
    EXPECT_EQ(stragglers[0].cause, StragglerCause::link);
    EXPECT_EQ(stragglers[0].persistence, 1);
    EXPECT_NEAR(stragglers[0].lost_s, 0.95 * 10.5e-3, 1e-5);  // with 0.5 ms of comm
    EXPECT_EQ(stragglers_text(stragglers),
              "rank 2 on n2 holds the others up by 10ms a step (50 %): its node's link is slow: "
              "50 MB/s, others' 1.0 GB/s");
    EXPECT_NE(advice(stragglers[0]).find("bench comm"), std::string::npos);
    EXPECT_TRUE(found(0).empty()) << "nobody waits for it";
}

// What the others wait for rank 1 is not the link's; rank 1 itself waits for nothing else.
TEST_F(SlowNode, IsToldApartFromALateRank) {
    const auto late = found(0, 1);
    ASSERT_EQ(late.size(), 1u);
    EXPECT_EQ(late[0].rank, 1);
    EXPECT_EQ(late[0].cause, StragglerCause::cores);
    const auto both = found(10e-3, 1);
    ASSERT_EQ(both.size(), 2u);
    EXPECT_EQ(both[0].rank, 2);
    EXPECT_NE(stragglers_text(both).find("; slow, too: rank 1"), std::string::npos);
}

// Its messages come as fast as the others': what takes it longer is its own work.
TEST(Stragglers, AreSlowAtSumsByTheirCoresWhereLinksAreAlike) {
    TestRun run(4, slow_rank(Phase::comm, 2e-3));
    for (int r = 0; r < 4; ++r)
        run.links[static_cast<std::size_t>(r)] = {
            {.from = r ^ 1, .messages = 9, .bytes = 1'000'000, .seconds = 1}};
    EXPECT_EQ(run.stragglers().at(0).cause, StragglerCause::cores);
}

TEST(Stragglers, MayBeRanksOfANodeOrOfTwo) {
    Straggler straggler{.rank = 4,
                        .host = "n1",
                        .cause = StragglerCause::link,
                        .lost_s = 0.031,
                        .share = 0.44,
                        .data_bound = {},
                        .link = SlowLink{.host = "n1",
                                         .ranks = {4, 5, 6, 7},
                                         .other_ranks = {},
                                         .way = LinkWay::sends,
                                         .bytes_per_s = 48e6,
                                         .usual_bytes_per_s = 1.1e9}};
    EXPECT_EQ(stragglers_text({&straggler, 1}),
              "ranks 4-7 on n1 hold the others up by 31ms a step (44 %): its node's link is slow: "
              "it sends 48 MB/s, others' 1.1 GB/s");
    straggler.link->other_host = "n2";
    straggler.link->other_ranks = {8};
    EXPECT_EQ(stragglers_text({&straggler, 1}),
              "ranks 4-7 on n1 and rank 8 on n2 hold the others up by 31ms a step (44 %): the link "
              "between them is slow: 48 MB/s from ranks 4-7 to rank 8, others' 1.1 GB/s");
    straggler.link->are_alone = true;
    EXPECT_EQ(stragglers_text({&straggler, 1}),
              "ranks 4-7 on n1 and rank 8 on n2 hold each other up by 31ms a step (44 %): the link "
              "between them is slow: 48 MB/s from ranks 4-7 to rank 8, 1.1 GB/s the other way");
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

std::string host_of(int node) {
    return "n" + std::to_string(node);
}

/// Which nodes exchange messages with each other: as sums between nodes pair them; of three all.
std::set<std::pair<int, int>> pairs_of(int nodes) {
    if (nodes == 3) return {{0, 1}, {0, 2}, {1, 2}};
    int members = 1;
    while (2 * members <= nodes) members *= 2;
    const int doubles = nodes - members;
    const auto first = [&](int member) { return member < doubles ? 2 * member : member + doubles; };
    std::set<std::pair<int, int>> pairs;
    for (int member = 0; member < doubles; ++member) pairs.insert({2 * member, 2 * member + 1});
    for (int member = 0; member < members; ++member)
        for (int distance = 1; distance < members; distance *= 2)
            if ((member & distance) == 0) pairs.insert({first(member), first(member ^ distance)});
    return pairs;
}

using Rate = std::function<double(int from, int to)>;

/// Nodes of `ranks` ranks each, of which those with the same place exchange messages.
struct TestNetwork {
    TestNetwork(int nodes, int ranks, const Rate& rate)
        : links(static_cast<std::size_t>(nodes * ranks)) {
        for (const auto& [a, b] : pairs_of(nodes))
            for (int place = 0; place < ranks; ++place)
                for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)})
                    links[static_cast<std::size_t>(to * ranks + place)].push_back(
                        {.from = from * ranks + place,
                         .messages = 4,
                         .bytes = 1'000'000,
                         .seconds = 1e6 / rate(from, to)});
        for (int rank = 0; rank < nodes * ranks; ++rank)
            all.push_back({.rank = rank,
                           .host = host_of(rank / ranks),
                           .links = links[static_cast<std::size_t>(rank)]});
    }
    std::vector<SlowLink> slow() const { return find_slow_links(all); }

    std::vector<std::vector<LinkTimes>> links;
    std::vector<RankSteps> all;
};

bool is_way(LinkWay way, int slow, int from, int to) {
    return (from == slow && way != LinkWay::receives) || (to == slow && way != LinkWay::sends);
}

RC_GTEST_PROP(SlowLinks, NameTheSlowNodeAndTheWay, ()) {
    const int nodes = *rc::gen::inRange(3, 17), slow = *rc::gen::inRange(0, nodes);
    const auto way = *rc::gen::element(LinkWay::both, LinkWay::sends, LinkWay::receives);
    const int ranks = *rc::gen::inRange(1, 4);
    const TestNetwork network(nodes, ranks, [&](int from, int to) {
        const double jitter = 0.01 * *rc::gen::inRange(70, 131);
        return jitter * (is_way(way, slow, from, to) ? 0.2e9 : 1e9);
    });
    const std::vector<SlowLink> found = network.slow();
    RC_ASSERT(found.size() == 1u);
    RC_ASSERT(found[0].host == host_of(slow));
    RC_ASSERT(found[0].other_host.empty());
    RC_ASSERT(found[0].way == way);
    RC_ASSERT(found[0].ranks.size() == static_cast<std::size_t>(ranks));
    RC_ASSERT(found[0].ranks.front() == slow * ranks);
    RC_ASSERT(found[0].bytes_per_s < 0.35e9);
    RC_ASSERT(found[0].usual_bytes_per_s > 0.6e9);
}

RC_GTEST_PROP(SlowLinks, AreNoneWhereAllAreAlike, ()) {
    const int nodes = *rc::gen::inRange(1, 17);
    const TestNetwork network(nodes, 2, [](int, int) { return 1e7 * *rc::gen::inRange(70, 131); });
    RC_ASSERT(network.slow().empty());
}

TEST(SlowLinks, AreBetweenTwoNodesWhereNeitherIsSlowElsewhere) {
    const auto found = TestNetwork(8, 2, [](int from, int to) {
                           return from + to == 3 && from * to == 2 ? 1e8 : 1e9;  // 1 and 2
                       }).slow();
    EXPECT_TRUE(found.empty());  // which do not meet
    const auto between =
        TestNetwork(8, 2, [](int from, int to) { return from + to == 1 ? 1e8 : 1e9; }).slow();
    ASSERT_EQ(between.size(), 1u);
    EXPECT_EQ(between[0].host, "n0");
    EXPECT_EQ(between[0].other_host, "n1");
    EXPECT_EQ(between[0].ranks, std::vector({0, 1}));
    EXPECT_EQ(between[0].other_ranks, std::vector({2, 3}));
    EXPECT_NEAR(between[0].bytes_per_s, 1e8, 1);
}

TEST(SlowLinks, OfTwoNodesAreNoneUnlessOneWayIs) {
    EXPECT_TRUE(TestNetwork(2, 1, [](int, int) { return 1e7; }).slow().empty());
    const auto found =
        TestNetwork(2, 1, [](int from, int) { return from == 1 ? 1e7 : 1e9; }).slow();
    ASSERT_EQ(found.size(), 1u);
    EXPECT_FALSE(found[0].other_host.empty());
}

TEST(SlowLinks, MayBeOfSeveralNodes) {
    const auto found = TestNetwork(16, 1, [](int from, int to) {
                           return from == 3 || to == 3 || from == 12 || to == 12 ? 1e8 : 1e9;
                       }).slow();
    ASSERT_EQ(found.size(), 2u);
    EXPECT_EQ((std::set{found[0].host, found[1].host}), (std::set<std::string>{"n3", "n12"}));
}

TEST(SlowLinks, NeedMessagesBetweenNodesAndHaveRatesAsLinksAreSold) {
    const std::vector<LinkTimes> few = {{.from = 0, .messages = 1, .bytes = 100, .seconds = 1}};
    const std::vector<LinkTimes> own = {{.from = 0, .messages = 9, .bytes = 100, .seconds = 1}};
    const std::vector<RankSteps> ranks = {{.rank = 0, .host = "a"},
                                          {.rank = 1, .host = "a", .links = own},
                                          {.rank = 2, .host = "b", .links = few}};
    EXPECT_TRUE(find_slow_links(ranks).empty());
    EXPECT_EQ(link_rate_clause(ranks), "");
    EXPECT_EQ(link_rate_clause(TestNetwork(3, 1, [](int, int) { return 2e8; }).all),
              "; from node to node a rank gets 200 MB/s");
    EXPECT_EQ(link_rate_text(1.12e9), "1.1 GB/s");
    EXPECT_EQ(link_rate_text(48.2e6), "48 MB/s");
    EXPECT_EQ(link_rate_text(3.14e6), "3.1 MB/s");
}

}  // namespace
}  // namespace lockstep
