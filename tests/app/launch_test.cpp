// SPDX-License-Identifier: Apache-2.0
#include "launch.hpp"

#include "lockstep/core/process.hpp"

#include "supervise.hpp"
#include "support/caught.hpp"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace lockstep {
namespace {

const Environment as_root({{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                           {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}});

TEST(MpirunLine, StartsThisProgramWithTheGivenWords) {
    const auto line = mpirun_line({1, false, {"train", "--np", "1"}, {}}, as_root);
    EXPECT_EQ(line[0], "mpirun");
    EXPECT_EQ(line[2], "1");
    EXPECT_EQ(*(line.end() - 4), this_executable());
    EXPECT_EQ(*(line.end() - 3), "train");
}

TEST(MpirunLine, RefusesMoreRanksThanCoresUnlessToldTo) {
    EXPECT_EQ(test::caught_code([] { mpirun_line({100'000, false, {}, {}}, as_root); }), "E601");
    EXPECT_THAT(mpirun_line({100'000, true, {}, {}}, as_root),
                testing::Contains("--oversubscribe"));
}

TEST(MpirunLine, RootNeedsOpenMpisLeave) {
    if (::geteuid() != 0) GTEST_SKIP() << "only root is asked";
    const Environment nothing(std::map<std::string, std::string>{});
    EXPECT_EQ(test::caught_code([&] { mpirun_line({1, false, {}, {}}, nothing); }), "E603");
}

TEST(ShellText, QuotesWhatAShellWouldRead) {
    EXPECT_EQ(shell_text({"a", "b c", "it's", "$(x)", ""}), R"(a 'b c' 'it'\''s' '$(x)' '')");
}

TEST(Supervise, ReturnsTheExitCode) {
    EXPECT_EQ(supervise({"true"}, {}), 0);
    EXPECT_EQ(supervise({"bash", "-c", "exit $CODE"}, {{"CODE", "75"}}), 75);
}

TEST(Supervise, AKilledChildIsAnErrorThatSaysSo) {
    EXPECT_EQ(test::caught_code([] { supervise({"bash", "-c", "kill -9 $$"}, {}); }), "E612");
    EXPECT_EQ(test::caught_code([] { supervise({"bash", "-c", "exit 137"}, {}); }), "E612");
    EXPECT_EQ(test::caught_code([] { supervise({"no-such-program"}, {}); }), "E610");
}

TEST(Supervise, PassesSignalsOnAsUsr2) {
    const char* script = "trap 'exit 75' USR2; kill -TERM $PPID; while :; do sleep 0.05; done";
    EXPECT_EQ(supervise({"bash", "-c", script}, {}), 75);
    const char* interrupted = "trap 'exit 75' USR2; kill -INT $PPID; while :; do sleep 0.05; done";
    EXPECT_EQ(supervise({"bash", "-c", interrupted}, {}), 130);
}

TEST(Supervise, ASecondInterruptEndsAStubbornChild) {
    const char* stubborn = "trap '' USR2; kill -INT $PPID; sleep 0.2; kill -INT $PPID; sleep 60";
    EXPECT_EQ(supervise({"bash", "-c", stubborn}, {}), 130);
}

TEST(LaunchFolder, IsThereAndGoesAndTakesAbandonedOnesAlong) {
    std::filesystem::path path, abandoned;
    {
        const LaunchFolder folder;
        path = folder.path();
        EXPECT_TRUE(std::filesystem::is_directory(path));
        abandoned = path.parent_path() / "lockstep-launch-abandoned";
        std::filesystem::create_directory(abandoned);
        std::ofstream(abandoned / "lock") << "";
        const LaunchFolder second;
        EXPECT_TRUE(std::filesystem::exists(path)) << "a living launcher's folder stays";
        EXPECT_FALSE(std::filesystem::exists(abandoned));
    }
    EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace lockstep
