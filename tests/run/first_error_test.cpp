// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/log_merge.hpp"

#include "log_lines.hpp"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using test::LogFolder;
using testing::ElementsAre;
using testing::IsEmpty;

RankErrors errors_in(const LogFolder& logs) {
    LogMerge merge(logs.path(), {.least = Level::error});
    return read_errors(merge, read_log_facts(logs.path()));
}

TEST(FirstError, IsNoConsequenceOfAPeersEnd) {
    LogFolder logs;
    logs.error(0, 1, "E682", "rank 3 gave up").error(1, 2, "E660", "rank 3 is gone");
    logs.error(3, 3, "E204", "'x' is cut short").line(2, 0, "well");
    const RankErrors errors = errors_in(logs);
    ASSERT_TRUE(errors.first.has_value());
    EXPECT_EQ(errors.first->code, "E204");
    EXPECT_EQ(errors.first->host, "n2");
    EXPECT_THAT(errors.first->ranks, ElementsAre(3));
    EXPECT_THAT(errors.followers, ElementsAre(0, 1));
}

TEST(FirstError, GoesByTheCorrectedClock) {
    LogFolder logs;
    logs.clock(0, 0).error(0, 100, "E402", "the second");
    logs.clock(2, 500).error(2, 599, "E405", "the first");
    EXPECT_EQ(errors_in(logs).first->code, "E405");
}

TEST(FirstError, PrefersARanksOwnToOneInDoubt) {
    LogFolder logs;
    logs.error(0, 1, "E620", "MPI failed").error(1, 2, "E405", "disk full");
    EXPECT_EQ(errors_in(logs).first->code, "E405");
    LogFolder doubtful;
    doubtful.error(0, 1, "E620", "MPI failed");
    EXPECT_EQ(errors_in(doubtful).first->blame, Blame::unsure);
}

// Ranks that agreed on an error all log it; it is of those who met it.
TEST(FirstError, NamesWhoMetAnErrorThatAllAgreedOn) {
    LogFolder logs;
    for (int rank = 0; rank < 4; ++rank)
        logs.event(rank,
                   5,
                   {{"event", "error"},
                    {"code", "E204"},
                    {"what", "cut short"},
                    {"ranks", Json::Array{Json(2)}}});
    const RankErrors errors = errors_in(logs);
    EXPECT_THAT(errors.first->ranks, ElementsAre(2));
    EXPECT_EQ(errors.first->host, "n2");
    EXPECT_THAT(errors.followers, IsEmpty());
}

TEST(FirstError, HasTheFixThatTheLogHas) {
    LogFolder logs;
    logs.event(0, 1, {{"event", "error"}, {"code", "E204"}, {"what", "a"}, {"fix", "copy it"}});
    EXPECT_EQ(errors_in(logs).first->fix, "copy it");
}

TEST(FirstError, IsOnlyToldWhereOnlyPeersAreToldOf) {
    LogFolder logs;
    logs.error(0, 1, "E660", "rank 3 is gone");
    const RankErrors errors = errors_in(logs);
    EXPECT_FALSE(errors.first.has_value());
    ASSERT_TRUE(errors.told.has_value());
    EXPECT_EQ(errors.told->what, "rank 3 is gone");
    EXPECT_THAT(errors.followers, ElementsAre(0));
}

}  // namespace
}  // namespace lockstep
