// SPDX-License-Identifier: Apache-2.0
#include "support/ends.hpp"

#include <vector>

namespace {

using lockstep::test::ends;
using testing::HasSubstr;
using testing::Not;

lockstep::ProcessResult run_misbehaving(const std::string& test, const char* deadline_s) {
    const std::vector<std::string> argv = {
        MPIRUN_4, MISBEHAVING, "--gtest_color=no", "--gtest_filter=Misbehaving." + test};
    return lockstep::run_process(argv, {{"LOCKSTEP_TEST_DEADLINE_S", deadline_s}}, 90);
}

TEST(MpiMain, IsQuietOnOtherRanksWhenAllPass) {
    EXPECT_THAT(run_misbehaving("PassesEverywhere", "60"),
                ends(0, "[  PASSED  ] 1 test.", Not(HasSubstr("rank"))));
}

TEST(MpiMain, NamesARankThatFailsAndExitsWithItsCode) {
    EXPECT_THAT(run_misbehaving("FailsOnRankTwo", "60"),
                ends(1,
                     "failure in Misbehaving.FailsOnRankTwo",
                     "[rank 2]   second line",
                     "on rank(s) 2 of 4"));
}

TEST(MpiMain, NamesARankThatThrows) {
    EXPECT_THAT(run_misbehaving("ThrowsOnRankOne", "60"),
                ends(1, "thrown on purpose", "on rank(s) 1 of 4"));
}

TEST(MpiMain, NamesARankThatHangsAndTheOnesThatWait) {
    EXPECT_THAT(run_misbehaving("HangsOnRankTwo", "3"),
                ends(124,
                     "rank 2 is stuck in Misbehaving.HangsOnRankTwo",
                     "ranks 0-1,3 are in MPI_Barrier of Misbehaving.Hangs"));
}

TEST(MpiMain, TellsAHangFromAWaitInSharedMemory) {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "ThreadSanitizer holds signals back while a rank spins";
#endif
    EXPECT_THAT(run_misbehaving("LeavesASharedWaitToTheOthers", "3"),
                ends(124,
                     "rank 1 is stuck in Misbehaving.LeavesAShared",
                     "ranks 0,2-3 are in a shared wait of Misbehaving.Leav"));
}

TEST(MpiMain, ShowsRanksThatWaitInDifferentPlaces) {
    EXPECT_THAT(run_misbehaving("LeavesRankThreeOutOfABarrier", "3"),
                ends(124, "rank 3 is in MPI_Barrier of the end of Misbehaving.LeavesRankThree"));
}

}  // namespace
