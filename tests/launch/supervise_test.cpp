// SPDX-License-Identifier: Apache-2.0
#include "lockstep/launch/supervise.hpp"

#include "support/caught.hpp"

#include <csignal>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Supervise, ReturnsTheExitCode) {
    EXPECT_EQ(supervise({"true"}, {}), 0);
    EXPECT_EQ(supervise({"bash", "-c", "exit $CODE"}, {{"CODE", "75"}}), 75);
}

TEST(Supervise, AKilledChildIsAnErrorThatSaysSo) {
    EXPECT_EQ(test::caught_code([] { supervise({"bash", "-c", "kill -9 $$"}, {}); }), "E612");
    EXPECT_EQ(test::caught_code([] { supervise({"bash", "-c", "exit 137"}, {}); }), "E612");
    EXPECT_EQ(test::caught_code([] { supervise({"no-such-program"}, {}); }), "E610");
}

TEST(Supervise, LeavesSignalsAsTheyWereHoweverItEnds) {
    supervise({"true"}, {});
    test::caught_code([] { supervise({"no-such-program"}, {}); });
    sigset_t blocked;
    ASSERT_EQ(::sigprocmask(SIG_BLOCK, nullptr, &blocked), 0);
    for (const int signal : {SIGUSR2, SIGTERM, SIGINT, SIGCHLD})
        EXPECT_EQ(::sigismember(&blocked, signal), 0) << signal;
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
