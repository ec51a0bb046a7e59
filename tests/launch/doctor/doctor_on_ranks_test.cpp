// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/clock.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/launch/examine.hpp"

#include "doctor/probes.hpp"
#include "support/mpi_test.hpp"
#include "support/unit.hpp"

#include <algorithm>
#include <thread>

#include <sched.h>

namespace lockstep {
namespace {

using test::ranks;

std::string errors_in(const std::vector<DoctorFinding>& findings) {
    std::string text;
    for (const DoctorFinding& each : findings)
        if (each.severity == Severity::error) text += each.id + ": " + each.what + "\n";
    return text;
}

/// On the root, which judges.
std::vector<DoctorFinding> after(const std::function<void(DoctorFacts&)>& harm,
                                 const std::string& id) {
    DoctorFacts mine = examine_rank(ranks(), RankFacts(), {});
    harm(mine);
    const auto all = gather_facts(ranks(), mine);
    return ranks().is_root() ? run_checks(all, {.only = {id}}) : std::vector<DoctorFinding>();
}

TEST(DoctorOnRanks, FindsNoErrorHere) {
    const auto all = gather_facts(ranks(), examine_rank(ranks(), RankFacts(), {}));
    ASSERT_EQ(static_cast<int>(all.size()), ranks().is_root() ? ranks().size() : 0);
    if (!ranks().is_root()) return;
    EXPECT_EQ(errors_in(run_checks(all, {.slowest = Pace::fast})), "");
    for (int rank = 0; rank < ranks().size(); ++rank)
        EXPECT_EQ(all[static_cast<std::size_t>(rank)].rank, rank);
}

// Once in ten times at least: others may have the cores meanwhile.
TEST(DoctorOnRanks, PreflightTakesLessThanTwoSeconds) {
    double best = 1e9;
    std::int64_t quick = 0;
    for (int i = 0; i < 10 && quick < ranks().size(); ++i) {
        ranks().barrier();
        const double begin = now_s();
        EXPECT_EQ(caught_text([] { run_preflight(ranks(), RankFacts(), {}); }), "");
        best = std::min(best, now_s() - begin);
        quick = best < 2.0 ? 1 : 0;
        ranks().all_reduce_sum({&quick, 1});
    }
    RecordProperty("best_ms", static_cast<int>(1000 * best));
    EXPECT_LT(best, 2.0);
}

TEST(DoctorOnRanks, PreflightStopsAllRanksAlike) {
    const DoctorPlan greedy{.shared_bytes = std::uint64_t{1} << 60};
    EXPECT_EQ(caught_code([&] { run_preflight(ranks(), RankFacts(), greedy); }), "E613");
    EXPECT_EQ(caught_text([&] { run_preflight(ranks(), RankFacts(), greedy, {"L1"}); }), "");
}

TEST(DoctorOnRanks, FindsStaleVariablesOfOneRank) {
    LOCKSTEP_NEEDS_RANKS(2);
    const auto findings = after(
        [](DoctorFacts& mine) {
            if (mine.rank == 1) mine.environment["OMPI_COMM_WORLD_RANK"] = "7";
        },
        "D2");
    const std::string said = ranks().is_root() ? "mpirun says rank 7" : "";
    EXPECT_THAT(errors_in(findings), HasSubstr(said));
}

TEST(DoctorOnRanks, FindsRanksBoundToOneCore) {
    LOCKSTEP_NEEDS_RANKS(2);
    const bool is_one_each = ranks().size() == 2 && ranks().split_by_node().size() == 1;
    if (is_one_each) GTEST_SKIP() << "no two ranks on a node";
    const auto findings = after([](DoctorFacts& mine) { mine.node.allowed_cpus = {0}; }, "C2");
    EXPECT_EQ(std::ranges::count(findings, "C2", &DoctorFinding::id) > 0, ranks().is_root());
}

TEST(DoctorOnRanks, ProbesAndTestsWithoutError) {
    if (ranks().size() > 3) GTEST_SKIP() << "more ranks than cores only take longer";
    DoctorFacts mine = examine_rank(ranks(), RankFacts(), {});
    examine_slowly(ranks(), mine);
    const auto all = gather_facts(ranks(), mine);
    EXPECT_EQ(ranks().is_root() ? errors_in(run_checks(all)) : "", "");
    ASSERT_TRUE(mine.self_test.has_value());
    EXPECT_EQ(mine.self_test->wrong_sums.size(), ranks().size() > 1 ? 8u : 0u);
    const std::string hash = ranks().broadcast(mine.self_test->state_hash);
    EXPECT_EQ(mine.self_test->state_hash, hash);
    EXPECT_GE(mine.self_test->step_s.size(), 20u);
    ASSERT_TRUE(mine.load.has_value());
    EXPECT_GE(mine.load->watched_s, 0.25);
    EXPECT_GT(mine.load->computed_s, 0);
    EXPECT_LE(mine.load->computed_s, mine.load->watched_s);
}

/// Collective. A thread of the root's stands for another process on its core.
DoctorFacts examined_beside_a_thread_of_the_root() {
    DoctorFacts mine = examine_rank(ranks(), RankFacts(), {});
    if (!ranks().is_root()) {
        examine_load(ranks(), mine);
        return mine;
    }
    cpu_set_t before, one;
    EXPECT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
    int cpu = 0;
    while (!CPU_ISSET(cpu, &before)) ++cpu;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    EXPECT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    mine.node.allowed_cpus = {cpu};
    {
        const std::jthread other([](const std::stop_token& stop) {
            while (!stop.stop_requested()) continue;
        });
        examine_load(ranks(), mine);
    }
    EXPECT_EQ(::sched_setaffinity(0, sizeof before, &before), 0);
    return mine;
}

TEST(DoctorOnRanks, SeeWhoElseIsOnTheirCore) {
    const DoctorFacts mine = examined_beside_a_thread_of_the_root();
    ASSERT_TRUE(mine.load.has_value());
    if (!ranks().is_root()) return;
    const auto findings = run_checks({&mine, 1}, {.only = {"C8"}});
    ASSERT_EQ(findings.size(), 1u) << mine.load->computed_s << " of " << mine.load->watched_s;
    EXPECT_EQ(findings[0].severity, Severity::warning);
    EXPECT_THAT(findings[0].what, HasSubstr("other processes keep 0."));
}

TEST(DoctorOnRanks, TriesSharedAddresses) {
    LOCKSTEP_NEEDS_RANKS(2);
    NodeTopology node;
    node.host = "here";
    const bool is_one_node = ranks().split_by_node().size() == ranks().size();
    if (is_one_node)
        node.interfaces = {{.name = "eth0",
                            .state = "up",
                            .addresses = {"127.0.0.1/8"},
                            .kind = InterfaceKind::ethernet}};
    else
        node = read_topology();
    const NetworkProbe probe = probe_addresses(ranks(), node);
    EXPECT_THAT(probe.unreached, IsEmpty());
    EXPECT_GE(probe.tried, ranks().size() - 1);
    EXPECT_THAT(probe.reached, IsEmpty());
}

NodeTopology node_at(const std::string& host, const std::string& address) {
    NodeTopology node;
    node.host = host;
    node.interfaces = {
        {.name = "eth0", .state = "up", .addresses = {address}, .kind = InterfaceKind::ethernet}};
    return node;
}

TEST(DoctorOnRanks, TellsOfHostsThatAnswerAtOneAddressOfTwo) {
    const OpenPorts mine(node_at("a", "127.0.0.1/8")), theirs(node_at("b", "127.0.0.2/8"));
    Json offer = parse_json(theirs.offer(), "an offer");
    const Json open = offer.at("ports").at(0);
    offer["ports"].push_back({open.at(0), "127.0.0.3", 1});
    const NetworkProbe probe = mine.try_others({mine.offer(), offer.dump()}, 0);
    EXPECT_EQ(probe.tried, 2);
    ASSERT_EQ(probe.unreached.size(), 1u);
    EXPECT_EQ(probe.unreached[0].address, "127.0.0.3");
    EXPECT_EQ(probe.reached, std::vector<std::string>{"b"});
}

/// As if all numbers lay sorted in one place.
TEST(DoctorOnRanks, FindTheMedianOfTheirNumbers) {
    for (const int each : {0, 1, 2, 37}) {
        std::vector<double> mine;
        std::vector<double> all;
        for (int rank = 0; rank < ranks().size(); ++rank)
            for (int i = 0; i < each * (1 + rank % 2); ++i) {
                const double value = i % 5 == 0 ? 0 : 1e9 / (1 + (rank * 71 + i * 37) % 101);
                all.push_back(value);
                if (rank == ranks().rank()) mine.push_back(value);
            }
        std::ranges::sort(all);
        EXPECT_EQ(median_over(ranks(), mine), all.empty() ? 0 : all[all.size() / 2]);
    }
}

TEST(DoctorOnRanks, TellOfSlowLinksAloneAndOfTheSlowestOfMany) {
    SelfTestFacts test;
    test_links(ranks(), ranks(), test);
    EXPECT_EQ(test.median_link > 0, ranks().size() > 2);
    for (const PairSpeed& pair : test.slow_pairs)
        EXPECT_LT(pair.bytes_per_s, std::max(slow_link_share * test.median_link, doubtful_link));
    std::vector<PairSpeed> pairs = {{99, 71}};
    for (int rank = 0; rank < 40; ++rank) pairs.push_back({rank, 69.0 - rank});
    const auto slow = slow_pairs_of(pairs, 100);
    ASSERT_EQ(slow.size(), 16u);
    EXPECT_EQ(slow.front(), (PairSpeed{39, 30}));
    EXPECT_EQ(slow.back(), (PairSpeed{24, 45}));
}

TEST(DoctorOnRanks, NamesAddressesThatRefuse) {
    constexpr int nobody_listens = 1;  // tcpmux, long out of use
    const auto unreached = unreached_of({{"b", "127.0.0.1", nobody_listens}});
    ASSERT_EQ(unreached.size(), 1u);
    EXPECT_EQ(unreached[0], (UnreachedAddress{"b", "127.0.0.1", "Connection refused"}));
}

}  // namespace
}  // namespace lockstep
