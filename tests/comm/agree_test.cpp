// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/agree.hpp"

#include "support/mpi_test.hpp"

#include <map>
#include <stdexcept>

#include <gmock/gmock.h>

namespace {

using lockstep::AgreedError;
using lockstep::Error;
using lockstep::test::ranks;
using testing::HasSubstr;

/// What agree() throws on this rank when `step` fails somewhere.
template <class Step>
AgreedError failure_of(Step&& step) {
    try {
        lockstep::agree(ranks(), step);
    } catch (const AgreedError& error) {
        return error;
    }
    throw std::logic_error("nothing was thrown");
}

TEST(Agree, GivesEveryRankItsOwnValue) {
    EXPECT_EQ(lockstep::agree(ranks(), [] { return ranks().rank() * 2; }), ranks().rank() * 2);
    lockstep::agree(ranks(), [] {});
}

TEST(Agree, SaysEqualFailuresOnce) {
    const AgreedError error =
        failure_of([] { throw Error("E201", "no such folder", "it is gone", "make it"); });
    EXPECT_EQ(error.code(), "E201");
    EXPECT_STREQ(error.what(), "no such folder");
    EXPECT_EQ(error.why(), "it is gone");
    EXPECT_EQ(error.fix(), "make it");
    EXPECT_EQ(error.exit_code(), lockstep::ExitCode::missing_input);
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
    EXPECT_THAT(error.ranks(), testing::MatchesRegex("rank 1( on [a-z]+)? only"));
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
    EXPECT_THAT(error.ranks(), testing::MatchesRegex("rank 1( on [a-z]+)? only"));
    EXPECT_EQ(error.why(),
              "never written\nranks 2-3 failed otherwise; rank 2: E405: the disk is full");
}

TEST(Agree, TakesForeignExceptionsForBugs) {
    const AgreedError error = failure_of([] { throw std::runtime_error("odd"); });
    EXPECT_EQ(error.code(), "E700");
    EXPECT_EQ(error.exit_code(), lockstep::ExitCode::bug);
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

TEST(FromRoot, RunsOnlyThereAndTellsAll) {
    int calls = 0;
    const std::string text = lockstep::from_root(ranks(), [&] {
        ++calls;
        return std::string("a\0b", 3);
    });
    EXPECT_EQ(text, std::string("a\0b", 3));
    EXPECT_EQ(calls, ranks().is_root() ? 1 : 0);
}

TEST(FromRoot, FailsOnAllRanks) {
    try {
        lockstep::from_root(ranks(), []() -> std::string { throw Error("E404", "in use"); });
        ADD_FAILURE();
    } catch (const AgreedError& error) {
        EXPECT_EQ(error.code(), "E404");
        EXPECT_EQ(error.ranks(), "");
        EXPECT_EQ(error.speaks(), ranks().is_root());
    }
}

}  // namespace
