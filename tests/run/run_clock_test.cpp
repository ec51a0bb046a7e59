// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/run_status.hpp"

#include "log_lines.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using test::LogFolder;

constexpr double hour_s = 3600, heard_s = 1.6e9;

// Ranks 0 and 1 are on n1, rank 2 is on n2, whose clock is `ahead_s` ahead.
RunClock clock_of(LogFolder& logs, double ahead_s) {
    logs.clock(0, 0).clock(1, 0).clock(2, ahead_s);
    return read_run_clock(logs.path());
}

TEST(RunClock, KnowsRanksAndHostsByWhatTheyMeasured) {
    for (const double ahead_s : {hour_s, -hour_s}) {
        LogFolder logs;
        const RunClock clock = clock_of(logs, ahead_s);
        EXPECT_EQ(clock.ahead_s(1), 0);
        EXPECT_EQ(clock.ahead_s(2), ahead_s);
        EXPECT_EQ(clock.ahead_s(3), 0) << "which has no log";
        EXPECT_EQ(clock.ahead_on("n1"), 0);
        EXPECT_EQ(clock.ahead_on("n2"), ahead_s);
        EXPECT_FALSE(clock.ahead_on("n3").has_value());
        EXPECT_FALSE(clock.ahead_on("").has_value());
    }
    EXPECT_EQ(read_run_clock("/nonexistent").ahead_s(0), 0);
}

TEST(RunClock, TakesTheReadersClockForWhatItIs) {
    for (const double ahead_s : {hour_s, -hour_s}) {
        LogFolder logs;
        const RunClock clock = clock_of(logs, ahead_s);
        EXPECT_EQ(clock.present_s(heard_s + 1, "n1", heard_s), heard_s + 1);
        EXPECT_EQ(clock.present_s(heard_s + 1 + ahead_s, "n2", heard_s), heard_s + 1);
        EXPECT_EQ(clock.present_s(heard_s + 1, "login", heard_s), heard_s + 1);
    }
}

// Where no rank is on the reader's host, the file server tells how rank 0's clock stands.
TEST(RunClock, AsksTheFileSystemWhereASignOfLifeCannotBeOfNow) {
    for (const double ahead_s : {hour_s, -hour_s}) {
        LogFolder logs;
        const RunClock clock = clock_of(logs, 0);
        const fs::path log = logs.path() / "rank-00000.jsonl";
        const double here_s = 1e-9 * static_cast<double>(file_stamp(log).time_ns);
        logs.line(0, here_s + ahead_s, "step");
        EXPECT_NEAR(clock.present_s(here_s, "login", here_s + ahead_s), here_s + ahead_s, 5);
        EXPECT_EQ(clock.present_s(here_s + 10 * hour_s, "login", here_s + ahead_s),
                  here_s + 10 * hour_s)
            << "it is over for long";
    }
}

}  // namespace
}  // namespace lockstep
