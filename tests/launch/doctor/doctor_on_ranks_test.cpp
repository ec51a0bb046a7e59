// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/clock.hpp"
#include "lockstep/launch/examine.hpp"
#include "lockstep/launch/preflight.hpp"

#include "doctor/reachability.hpp"
#include "support/caught.hpp"
#include "support/mpi_test.hpp"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using test::ranks;
using testing::HasSubstr;
using testing::IsEmpty;

std::string errors_in(const std::vector<DoctorFinding>& findings) {
    std::string text;
    for (const DoctorFinding& each : findings)
        if (each.severity == Severity::error) text += each.id + ": " + each.what + "\n";
    return text;
}

bool has(const std::vector<DoctorFinding>& findings, const std::string& id) {
    return std::ranges::count(findings, id, &DoctorFinding::id) > 0;
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

/// The best of three: the machine may be busy with other things.
TEST(DoctorOnRanks, PreflightTakesLessThanTwoSeconds) {
    double best = 1e9;
    for (int i = 0; i < 3; ++i) {
        ranks().barrier();
        const double begin = now_s();
        EXPECT_EQ(test::caught_text([] { run_preflight(ranks(), RankFacts(), {}); }), "");
        best = std::min(best, now_s() - begin);
    }
    RecordProperty("best_ms", static_cast<int>(1000 * best));
    EXPECT_LT(best, 2.0);
}

TEST(DoctorOnRanks, PreflightStopsAllRanksAlike) {
    const DoctorPlan greedy{.shared_bytes = std::uint64_t{1} << 60};
    EXPECT_EQ(test::caught_code([&] { run_preflight(ranks(), RankFacts(), greedy); }), "E613");
    EXPECT_EQ(test::caught_text([&] { run_preflight(ranks(), RankFacts(), greedy, {"L1"}); }), "");
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
    EXPECT_EQ(has(findings, "C2"), ranks().is_root());
}

TEST(DoctorOnRanks, ProbesAndTestsWithoutError) {
    if (ranks().size() > 3) GTEST_SKIP() << "more ranks than cores only take longer";
    DoctorFacts mine = examine_rank(ranks(), RankFacts(), {});
    examine_slowly(ranks(), mine);
    const auto all = gather_facts(ranks(), mine);
    EXPECT_EQ(ranks().is_root() ? errors_in(run_checks(all)) : "", "");
    ASSERT_TRUE(mine.self_test.has_value());
    EXPECT_EQ(mine.self_test->wrong_sums.size(), ranks().size() > 1 ? 32u : 0u);
    const std::string hash = ranks().broadcast(mine.self_test->state_hash);
    EXPECT_EQ(mine.self_test->state_hash, hash);
    EXPECT_GE(mine.self_test->step_s.size(), 20u);
}

/// Ranks of one machine stand for node leaders: each tries the others' addresses.
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
    EXPECT_EQ(static_cast<int>(probe.reached.size()), probe.tried);
}

TEST(DoctorOnRanks, NamesAddressesThatRefuse) {
    constexpr int nobody_listens = 1;  // tcpmux, long out of use
    const auto unreached = unreached_of({{"b", "127.0.0.1", nobody_listens}});
    ASSERT_EQ(unreached.size(), 1u);
    EXPECT_EQ(unreached[0], (UnreachedAddress{"b", "127.0.0.1", "Connection refused"}));
}

}  // namespace
}  // namespace lockstep
