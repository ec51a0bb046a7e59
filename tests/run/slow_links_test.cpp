// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/stragglers.hpp"

#include <functional>
#include <set>
#include <utility>

#include <rapidcheck/gtest.h>

namespace lockstep {
namespace {

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
            all.push_back({rank, host_of(rank / ranks), links[static_cast<std::size_t>(rank)]});
    }
    std::vector<SlowLink> slow() const { return find_slow_links(all); }

    std::vector<std::vector<LinkTimes>> links;
    std::vector<RankLinks> all;
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

TEST(SlowLinks, NeedMessagesBetweenNodes) {
    const std::vector<LinkTimes> few = {{.from = 0, .messages = 1, .bytes = 100, .seconds = 1}};
    const std::vector<LinkTimes> own = {{.from = 0, .messages = 9, .bytes = 100, .seconds = 1}};
    const std::vector<RankLinks> ranks = {{0, "a", {}}, {1, "a", own}, {2, "b", few}};
    EXPECT_TRUE(find_slow_links(ranks).empty());
    EXPECT_EQ(link_rate_clause(ranks), "");
    EXPECT_EQ(link_rate_clause(TestNetwork(3, 1, [](int, int) { return 2e8; }).all),
              "; from node to node a rank gets 200 MB/s");
}

TEST(SlowLinks, HaveRatesAsLinksAreSold) {
    EXPECT_EQ(link_rate_text(1.12e9), "1.1 GB/s");
    EXPECT_EQ(link_rate_text(48.2e6), "48 MB/s");
    EXPECT_EQ(link_rate_text(3.14e6), "3.1 MB/s");
}

}  // namespace
}  // namespace lockstep
