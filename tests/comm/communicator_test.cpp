// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/communicator.hpp"

#include "lockstep/comm/agree.hpp"
#include "lockstep/comm/measure.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/run/flight_recorder.hpp"

#include "support/mpi_test.hpp"
#include "support/unit.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <stdexcept>

#include <unistd.h>

namespace {

using namespace lockstep;
using namespace lockstep::test;

TEST(Communicator, WorldHasAllRanks) {
    const Communicator world = Communicator::world();
    EXPECT_EQ(world.size(), ranks().size());
    EXPECT_EQ(world.rank(), ranks().rank());
    EXPECT_TRUE(launched_by_mpi());
    EXPECT_NE(MpiSession::library_version().find("MPI"), std::string::npos);
}

TEST(Communicator, BroadcastsBytesOfAnySizeFromAnyRank) {
    for (const std::size_t size : {0u, 1u, 1000u, 3000000u}) {
        for (int root = 0; root < ranks().size(); ++root) {
            const std::string expected(size, static_cast<char>('a' + root));
            const std::string mine = ranks().rank() == root ? expected : "something else";
            EXPECT_EQ(ranks().broadcast(mine, root), expected);
        }
    }
    const std::string bytes("a\0b\0", 4);
    EXPECT_EQ(ranks().broadcast(ranks().is_root() ? bytes : ""), bytes);
}

TEST(Communicator, GathersDifferentSizesByRankToAllOrTheRootAlone) {
    std::vector<std::string> texts;
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks().size()); ++rank)
        texts.emplace_back(rank * 1000, static_cast<char>('a' + rank));
    const std::string& mine = texts[static_cast<std::size_t>(ranks().rank())];
    EXPECT_EQ(ranks().all_gather(mine), texts);
    EXPECT_EQ(ranks().gather(mine), ranks().is_root() ? texts : std::vector<std::string>());
}

TEST(Communicator, NotesItsCallsDuringSetUpAndWhileRanksSave) {
    const TempDir folder;
    FlightRecorder recorder(folder.path(), ranks().rank(), ranks().size(), {.entries = 64});
    const Communicator own = ranks().duplicate();
    const Communicator copy = own;
    own.record_in(&recorder);
    copy.barrier();
    EXPECT_EQ(recorder.next().index, 1u);
    recorder.mark_running();
    copy.barrier();
    EXPECT_EQ(recorder.next().index, 1u) << "training has its own channel";
    *recorder.phase_word() = packed(PhaseMark{Phase::checkpoint, now_s()});
    static_cast<void>(copy.all_gather("x"));
    ASSERT_EQ(recorder.next().index, 2u);
    const auto noted = recorder.find({1});
    ASSERT_TRUE(noted);
    EXPECT_EQ(noted->call.op, FlightOp::all_gather);
    EXPECT_GT(noted->ended_s, 0);
    own.record_in(nullptr);
    copy.barrier();
    EXPECT_EQ(recorder.next().index, 2u);
}

TEST(Communicator, SumsAndMaximaAreElementWise) {
    const std::int64_t rank = ranks().rank(), size = ranks().size();
    std::array<std::int64_t, 3> sums = {rank, 1, -rank};
    std::array<std::int64_t, 3> maxima = {rank, 1, -rank};
    std::array<double, 2> reals = {rank == size - 1 ? 0.1 : 0.0, 0.5};
    ranks().all_reduce_sum(sums);
    ranks().all_reduce_max(maxima);
    ranks().all_reduce_sum(reals);
    const std::int64_t total = size * (size - 1) / 2;
    EXPECT_EQ(sums, (std::array<std::int64_t, 3>{total, size, -total}));
    EXPECT_EQ(maxima, (std::array<std::int64_t, 3>{size - 1, 1, 0}));
    EXPECT_EQ(reals, (std::array<double, 2>{0.1, 0.5 * static_cast<double>(size)}));
    ranks().all_reduce_sum(std::span<std::int64_t>());
    ranks().all_reduce_sum(std::span<double>());
}

TEST(Communicator, NodeHoldsAllRanksOfOneHostInOrder) {
    std::array<char, 256> host{};
    ::gethostname(host.data(), host.size() - 1);
    const std::vector<std::string> hosts = ranks().all_gather(host.data());
    const Communicator node = ranks().split_by_node();
    EXPECT_EQ(node.size(), std::count(hosts.begin(), hosts.end(), host.data()));
    EXPECT_EQ(node.rank(), std::count(hosts.begin(), hosts.begin() + ranks().rank(), host.data()));
}

TEST(Communicator, DuplicatesHaveTheirOwnMessages) {
    LOCKSTEP_NEEDS_RANKS(2);
    const Communicator other = ranks().duplicate();
    int result = MPI_UNEQUAL;
    MPI_Comm_compare(other.handle(), ranks().handle(), &result);
    EXPECT_EQ(result, MPI_CONGRUENT);
}

TEST(Communicator, CopiesShareOneHandleThatOutlivesTheFirst) {
    Communicator copy;
    {
        const Communicator first = ranks().duplicate();
        copy = first;
        EXPECT_EQ(copy.handle(), first.handle());
    }
    copy.barrier();
}

TEST(Communicator, TurnsMpiErrorsIntoErrors) {
    const Error error =
        error_of([] { (void)ranks().broadcast("x", ranks().size()); });  // a root that is not there
    EXPECT_EQ(error.code(), "E620");
    EXPECT_NE(std::string(error.what()).find("MPI_ERR_ROOT"), std::string::npos) << error.what();
}

/// What agree() throws on this rank when `step` fails somewhere.
template <class Step>
AgreedError failure_of(Step&& step) {
    try {
        agree(ranks(), step);
    } catch (const AgreedError& error) {
        return error;
    }
    throw std::logic_error("nothing was thrown");
}

TEST(Agree, GivesEveryRankItsOwnValueAndTakesForeignExceptionsForBugs) {
    EXPECT_EQ(agree(ranks(), [] { return ranks().rank() * 2; }), ranks().rank() * 2);
    agree(ranks(), [] {});
    const AgreedError error = failure_of([] { throw std::runtime_error("odd"); });
    EXPECT_EQ(error.code(), "E700");
    EXPECT_EQ(error.exit_code(), ExitCode::bug);
}

TEST(Agree, SaysEqualFailuresOnce) {
    const AgreedError error =
        failure_of([] { throw Error("E201", "no such folder", "it is gone", "make it"); });
    EXPECT_EQ(error.code(), "E201");
    EXPECT_STREQ(error.what(), "no such folder");
    EXPECT_EQ(error.why(), "it is gone");
    EXPECT_EQ(error.fix(), "make it");
    EXPECT_EQ(error.exit_code(), ExitCode::missing_input);
    EXPECT_EQ(error.speaks(), ranks().is_root());
    const std::map<int, std::string> expected = {
        {1, ""}, {2, "same on rank 1"}, {3, "same on ranks 1-2"}, {4, "same on ranks 1-3"}};
    EXPECT_EQ(error.ranks(), expected.at(ranks().size()));
}

TEST(Agree, NamesTheRanksOfASubset) {
    LOCKSTEP_NEEDS_RANKS(4);
    const AgreedError error = failure_of([] {
        if (ranks().rank() % 2 == 1) throw Error("E405", "the disk is full");
    });
    EXPECT_EQ(error.code(), "E405");
    EXPECT_EQ(error.ranks(), "ranks 1,3 only");
    EXPECT_EQ(error.why(), "");
}

TEST(Agree, FailsOnAllRanksWhenOneFails) {
    LOCKSTEP_NEEDS_RANKS(2);
    const AgreedError error = failure_of([] {
        if (ranks().rank() == 1) throw Error("E405", "the disk is full");
        return 5;
    });
    // Of several nodes the one is named.
    EXPECT_THAT(error.ranks(), MatchesRegex("rank 1( on [a-z]+)? only"));
    EXPECT_EQ(error.speaks(), ranks().is_root());
}

TEST(Agree, MentionsOtherErrorsInOneLine) {
    LOCKSTEP_NEEDS_RANKS(4);
    const AgreedError error = failure_of([] {
        if (ranks().rank() == 1) throw Error("E201", "missing", "never written");
        if (ranks().rank() >= 2) throw Error("E405", "the disk is full");
    });
    EXPECT_EQ(error.code(), "E201");
    // Of several nodes the one is named.
    EXPECT_THAT(error.ranks(), MatchesRegex("rank 1( on [a-z]+)? only"));
    EXPECT_EQ(error.why(),
              "never written\nranks 2-3 failed otherwise; rank 2: E405: the disk is full");
}

TEST(Agree, LeavesNothingBehindForTheNextOne) {
    for (int i = 0; i < 20; ++i) {
        const int unlucky = i % ranks().size();
        const AgreedError error = failure_of([&] {
            if (ranks().rank() == unlucky) throw Error("E201", std::to_string(i));
        });
        EXPECT_EQ(error.what(), std::to_string(i));
    }
}

TEST(FromRoot, RunsOnlyThereAndTellsAllAlsoOfAFailure) {
    int calls = 0;
    const std::string text = from_root(ranks(), [&] {
        ++calls;
        return std::string("a\0b", 3);
    });
    EXPECT_EQ(text, std::string("a\0b", 3));
    EXPECT_EQ(calls, ranks().is_root() ? 1 : 0);
    try {
        from_root(ranks(), []() -> std::string { throw Error("E404", "in use"); });
        ADD_FAILURE();
    } catch (const AgreedError& error) {
        EXPECT_EQ(error.code(), "E404");
        EXPECT_EQ(error.ranks(), "");
        EXPECT_EQ(error.speaks(), ranks().is_root());
    }
}

// All ranks of a test share one true clock: what a rank's clock is ahead is known exactly.
double skew_s(int rank) {
    return rank == 0 ? 0 : 100.0 * rank + 0.25;
}

ClockOffset measured(const Communicator& node) {
    return measure_clock_offset(ranks(), node, [] { return now_s() + skew_s(ranks().rank()); });
}

TEST(ClockOffset, FindsAnInjectedSkewWithinItsOwnBoundAndNoneWhereClocksAgree) {
    const ClockOffset offset = measured(Communicator());  // each rank is a node of its own
    EXPECT_NEAR(offset.ahead_s, skew_s(ranks().rank()), offset.error_s + 1e-9);
    EXPECT_LT(offset.error_s, 0.1);
    EXPECT_EQ(offset.error_s > 0, !ranks().is_root());
    // A skew that nobody injected would be found here as well.
    const ClockOffset none = measure_clock_offset(ranks(), Communicator(), now_s);
    EXPECT_LE(std::abs(none.ahead_s), none.error_s + 1e-9);
    EXPECT_LT(none.error_s, 0.1);
}

// The second node's first rank measures; the others of that node have its clock and its answer.
TEST(ClockOffset, IsOneForAllRanksOfANodeAndMeasuredByTheFirst) {
    const ClockOffset own = measured(ranks().split(0));
    EXPECT_EQ(own.ahead_s, 0);
    EXPECT_EQ(own.error_s, 0);
    const int color = ranks().rank() == 0 ? 0 : 1;
    const Communicator node = ranks().split(color);
    const ClockOffset offset =
        measure_clock_offset(ranks(), node, [&] { return now_s() + 7.0 * color; });
    EXPECT_NEAR(offset.ahead_s, 7.0 * color, offset.error_s + 1e-9);
}

}  // namespace
