// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/process.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>

namespace {

using testing::HasSubstr;
using testing::Not;

lockstep::ProcessResult run_misbehaving(const std::string& test, const char* deadline_s) {
    const std::vector<std::string> argv = {
        MPIRUN_4, MISBEHAVING, "--gtest_color=no", "--gtest_filter=Misbehaving." + test};
    return lockstep::run_process(argv, {{"LOCKSTEP_TEST_DEADLINE_S", deadline_s}}, 90);
}

TEST(MpiMain, IsQuietOnOtherRanksWhenAllPass) {
    const auto result = run_misbehaving("PassesEverywhere", "60");
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.output, HasSubstr("[  PASSED  ] 1 test."));
    EXPECT_THAT(result.output, Not(HasSubstr("rank")));
}

TEST(MpiMain, NamesARankThatFailsAndExitsWithItsCode) {
    const auto result = run_misbehaving("FailsOnRankTwo", "60");
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.output, HasSubstr("failure in Misbehaving.FailsOnRankTwo"));
    EXPECT_THAT(result.output, HasSubstr("[rank 2]   second line"));
    EXPECT_THAT(result.output, HasSubstr("on rank(s) 2 of 4"));
}

TEST(MpiMain, NamesARankThatThrows) {
    const auto result = run_misbehaving("ThrowsOnRankOne", "60");
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.output, HasSubstr("thrown on purpose"));
    EXPECT_THAT(result.output, HasSubstr("on rank(s) 1 of 4"));
}

TEST(MpiMain, NamesARankThatHangsAndTheOnesThatWait) {
    const auto result = run_misbehaving("HangsOnRankTwo", "3");
    EXPECT_EQ(result.exit_code, 124);
    EXPECT_THAT(result.output, HasSubstr("rank 2 is stuck in Misbehaving.HangsOnRankTwo"));
    EXPECT_THAT(result.output, HasSubstr("ranks 0-1,3 are in MPI_Barrier of Misbehaving.Hangs"));
}

TEST(MpiMain, TellsAHangFromAWaitInSharedMemory) {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "ThreadSanitizer holds signals back while a rank spins";
#endif
    const auto result = run_misbehaving("LeavesASharedWaitToTheOthers", "3");
    EXPECT_EQ(result.exit_code, 124);
    EXPECT_THAT(result.output, HasSubstr("rank 1 is stuck in Misbehaving.LeavesAShared"));
    EXPECT_THAT(result.output, HasSubstr("ranks 0,2-3 are in a shared wait of Misbehaving.Leav"));
}

TEST(MpiMain, ShowsRanksThatWaitInDifferentPlaces) {
    const auto result = run_misbehaving("LeavesRankThreeOutOfABarrier", "3");
    EXPECT_EQ(result.exit_code, 124);
    EXPECT_THAT(result.output,
                HasSubstr("rank 3 is in MPI_Barrier of the end of Misbehaving.LeavesRankThree"));
}

}  // namespace
