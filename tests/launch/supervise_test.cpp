// SPDX-License-Identifier: Apache-2.0
#include "lockstep/launch/supervise.hpp"

#include "launcher.hpp"
#include "support/unit.hpp"

#include <csignal>
#include <cstdlib>
#include <fstream>

#include <sys/resource.h>
#include <unistd.h>

namespace lockstep {
namespace {

// What supervising a launcher that is `script` throws.
Error failure_of(const std::string& script, const SupervisedRanks& ranks = {}) {
    return test::error_of([&] { supervise({"bash", "-c", script}, {}, ranks); });
}

TEST(Supervise, ReturnsTheExitCodeAndOfAKilledChildAnErrorThatSaysSo) {
    EXPECT_EQ(supervise({"true"}, {}), 0);
    EXPECT_EQ(supervise({"bash", "-c", "exit $CODE"}, {{"CODE", "75"}}), 75);
    EXPECT_EQ(failure_of("kill -9 $$").code(), "E612");
    EXPECT_EQ(failure_of("exit 137").code(), "E612");
    EXPECT_EQ(caught_code([] { supervise({"no-such-program"}, {}); }), "E610");
}

TEST(Supervise, LeavesSignalsAsTheyWereHoweverItEnds) {
    supervise({"true"}, {});
    caught_code([] { supervise({"no-such-program"}, {}); });
    sigset_t blocked;
    ASSERT_EQ(::sigprocmask(SIG_BLOCK, nullptr, &blocked), 0);
    for (const int signal : {SIGUSR2, SIGTERM, SIGINT, SIGCHLD})
        EXPECT_EQ(::sigismember(&blocked, signal), 0) << signal;
}

TEST(Supervise, LetsTheOwnerSayWhatBecameOfRanksThatBeganMeanwhile) {
    SupervisedRanks ranks{.have_begun = [] { return false; }};
    ranks.tell_early_end = [](ExitCode usual) { return static_cast<int>(usual) + 1000; };
    const auto end_by = [&](const std::string& signal, const std::string& last) {
        return supervise(
            {"bash", "-c", "trap '" + last + "' TERM; kill -" + signal + " $PPID; sleep 60 & wait"},
            {},
            ranks);
    };
    EXPECT_EQ(end_by("TERM", "exit 1"), 1075);
    EXPECT_EQ(end_by("INT", "exit 0"), 1130);
    EXPECT_EQ(end_by("TERM", "exit 75"), 75) << "they have said so themselves";
    EXPECT_EQ(end_by("INT", "exit 75"), 130);
    EXPECT_EQ(end_by("TERM", "exit 64"), 64);
}

constexpr const char* work = "while :; do sleep 0.05; done";

// Ranks at work, of a launcher on this host.
SupervisedRanks at_work() {
    return {.have_begun = [] { return true; }, .are_here = true, .limits = {}};
}

SupervisedRanks not_begun() {
    return {.have_begun = [] { return false; }, .are_here = true, .limits = {}};
}

// `script` after `signal` to the supervisor, by a launcher that has set its `trap`.
std::vector<std::string> after(const char* signal,
                               const std::string& script,
                               const std::string& trap = ":") {
    return {"bash", "-c", trap + "; kill -" + signal + " $PPID; " + script};
}

constexpr const char* stop_on_usr2 = "trap 'exit 75' USR2";

TEST(Supervise, PassesSignalsOnAsUsr2ToRanksAtWorkAndKeepsTheWordOfThoseThatEndOtherwise) {
    for (const char* signal : {"TERM", "HUP", "USR1", "USR2"})
        EXPECT_EQ(supervise(after(signal, work, stop_on_usr2), {}, at_work()), 75) << signal;
    EXPECT_EQ(supervise(after("INT", work, stop_on_usr2), {}, at_work()), 130);
    EXPECT_EQ(supervise(after("INT", work, "trap 'exit 0' USR2"), {}, at_work()), 0);
    EXPECT_EQ(supervise(after("TERM", work, "trap 'exit 64' TERM"), {}, not_begun()), 64);
}

TEST(Supervise, EndsWhatHasNothingToSaveAtOnce) {
    EXPECT_EQ(supervise(after("TERM", "sleep 60"), {}, not_begun()), 75);
    EXPECT_EQ(supervise(after("HUP", "sleep 60"), {}, not_begun()), 75);
    EXPECT_EQ(supervise(after("INT", "sleep 60"), {}, not_begun()), 130);
    EXPECT_EQ(supervise(after("TERM", "sleep 60"), {}), 128 + SIGTERM);
}

TEST(Supervise, HoldsASignalUntilRanksElsewhereHaveBegun) {
    int asked = 0;
    SupervisedRanks ranks;
    ranks.are_here = false;
    ranks.have_begun = [&] { return ++asked > 2; };
    EXPECT_EQ(supervise(after("TERM", work, stop_on_usr2), {}, ranks), 75);
    EXPECT_GT(asked, 2);
}

TEST(Supervise, ReachesAStoppedLauncher) {
    const std::string asked_when_stopped = "(sleep 0.3; kill -TERM $PPID) & kill -STOP $$; ";
    EXPECT_EQ(
        supervise({"bash", "-c", stop_on_usr2 + ("; " + asked_when_stopped) + work}, {}, at_work()),
        75);
    SupervisedRanks ranks = at_work();
    ranks.limits.gone_s = 1;
    EXPECT_EQ(supervise({"bash", "-c", "kill -STOP $$; exit 66"}, {}, ranks), 66)
        << "whose ranks are gone, and who has only to see it";
}

TEST(Supervise, GoesFromTermToKillWhereALauncherStaysWithoutRanks) {
    SupervisedRanks ranks = at_work();
    ranks.limits = {.begin_s = 60, .gone_s = 0.5, .end_s = 0.2};
    EXPECT_THAT(failure_of("trap '' TERM; exec sleep 60", ranks).text(),
                has("E691: ", "no living rank"));
}

// As mpirun that waits for a host behind a firewall; its owner knows the verdict.
TEST(Supervise, EndsALauncherThatStaysOnceItsRanksHaveGivenUp) {
    SupervisedRanks ranks = at_work();
    ranks.are_here = false;
    ranks.have_given_up = [] { return true; };
    ranks.limits.given_up_s = 0.5;
    EXPECT_EQ(failure_of("trap '' TERM; exec sleep 60", ranks).code(), "E612");
    EXPECT_EQ(supervise({"bash", "-c", "exit 76"}, {}, ranks), 76) << "that ends by itself";
}

TEST(Supervise, EndsALauncherWhoseRanksDoNotBeginAndWhatItStarted) {
    const TempDir folder;
    SupervisedRanks ranks = not_begun();
    ranks.limits = {.begin_s = 3, .gone_s = 60, .end_s = 0.2};
    EXPECT_THAT(caught_text([&] {
                    supervise({"bash", "-c", "trap '' TERM; sleep 60 & echo $! > $PIDS; wait"},
                              {{"PIDS", folder / "pids"}},
                              ranks);
                }),
                has("E691: ", "have not begun"));
    pid_t left = 0;
    std::ifstream(folder / "pids") >> left;
    ASSERT_GT(left, 0);
    EXPECT_EQ(::kill(left, 0), -1) << "a rank outlives its launcher";
}

TEST(Supervise, SaysWhatASignalUsuallyMeans) {
    const auto why = [](int signal) {
        return failure_of("exit " + std::to_string(128 + signal), at_work()).why();
    };
    EXPECT_THAT(why(SIGKILL), HasSubstr("memory"));
    EXPECT_THAT(why(SIGXFSZ), HasSubstr("ulimit -f"));
    EXPECT_THAT(why(SIGSEGV), HasSubstr("crashed"));
    EXPECT_THAT(why(SIGUSR2), AllOf(HasSubstr("somebody sent it"), Not(HasSubstr("memory"))));
}

TEST(Supervise, NamesTheRankWhoseEndMpirunTold) {
    const Error error = failure_of(
        "rule=$(printf -- '-%.0s' {1..74})\n"
        "printf '%s\n' \"$rule\" 'mpirun noticed that process rank 3 with PID 0 on node b exited "
        "on signal 9 (Killed).' \"$rule\" >&2; exit 137",
        at_work());
    EXPECT_STREQ(error.what(), "rank 3 on b was ended by signal 9 (Killed)");
    EXPECT_EQ(error.code(), "E612");
}

TEST(Supervise, TellsMpirunsOwnEndFromOneOfARank) {
    const auto code = [](const std::string& script, const SupervisedRanks& ranks) {
        const Error error = failure_of(script, ranks);
        return error.code() + " " + error.what();
    };
    // 1 and 213 (-43) are what Open MPI 4.1 and 5.0 give for a setting that makes no sense.
    for (const char* number : {"1", "127", "205", "213", "255"}) {
        const std::string script = std::string("exit ") + number;
        const std::string end = std::string("mpirun ended with exit code ") + number;
        EXPECT_EQ(code(script, not_begun()), "E697 " + end + " before the ranks began to train");
        EXPECT_EQ(code(script, at_work()), "E612 " + end + " while the ranks trained");
        EXPECT_EQ(code(script, {}), "E697 " + end);
    }
    for (const SupervisedRanks& ranks : {at_work(), not_begun()})
        EXPECT_THAT(failure_of("exit 205", ranks).why(), StartsWith("mpirun lost a daemon"));
    EXPECT_THAT(failure_of("exit 127", not_begun()).fix(),
                HasSubstr("ldd $(command -v lockstep-train)"));
    // Open MPI 4.1 without its working folder on a host, and a rank that SIGBUS ended.
    EXPECT_EQ(code("exit 135", not_begun()),
              "E612 mpirun ended with exit code 135, which has two meanings");
    EXPECT_THAT(failure_of("exit 135").why(),
                has("signal 7 (Bus error)", "a host has no folder of this name"));
    EXPECT_EQ(code("exit 135", at_work()), "E612 the ranks were ended by signal 7 (Bus error)");
    EXPECT_THAT(code("kill -KILL $$", {}), StartsWith("E612 the ranks were ended by signal 9"));
    EXPECT_THAT(code("kill -SEGV $$", not_begun()),
                StartsWith("E697 mpirun itself was ended by signal 11"));
    EXPECT_THAT(code("kill -SEGV $$", at_work()), StartsWith("E612 mpirun itself"));
    EXPECT_THAT(code("exit 136", not_begun()), StartsWith("E612 the ranks were ended"));
    EXPECT_EQ(failure_of("exit 78", not_begun()).code(), "none");
}

TEST(LauncherEnd, NamesTheSettingsThatMpirunWasGiven) {
    const TempDir home;
    std::filesystem::create_directory(home / ".openmpi");
    std::ofstream(home / ".openmpi/mca-params.conf") << "# a comment\n\n x = y\nz=1\n";
    const Environment environment(std::map<std::string, std::string>{
        {"OMPI_MCA_plm", "slurm"}, {"PRTE_MCA_plm", "ssh"}, {"PATH", "/bin"}});
    const MpiSettings found = mpi_settings(environment, home.path());
    EXPECT_EQ(found.variables, "OMPI_MCA_plm PRTE_MCA_plm");
    EXPECT_EQ(found.lines, "x = y, z=1");
    EXPECT_EQ(found.files, (home / ".openmpi/mca-params.conf").string());
    EXPECT_EQ(mpi_settings(Environment(std::map<std::string, std::string>{}), "/nowhere").lines,
              "");
}

TEST(LauncherEnd, TakesWhatAnotherLaunchLeftOutOfTheEnvironment) {
    for (const char* name :
         {"OMPI_UNIVERSE_SIZE", "PMIX_RANK", "PMI_SIZE", "OMPI_MCA_orte_hnp_uri", "SLURM_STEP_ID"})
        ::setenv(name, "1", 1);
    ::setenv("OMPI_MCA_oob_tcp_if_include", "lo", 1);
    ::setenv("SLURM_JOB_ID", "7", 1);
    ready_for_mpirun();
    for (const char* name :
         {"OMPI_UNIVERSE_SIZE", "PMIX_RANK", "PMI_SIZE", "OMPI_MCA_orte_hnp_uri", "SLURM_STEP_ID"})
        EXPECT_EQ(std::getenv(name), nullptr) << name;
    EXPECT_STREQ(std::getenv("OMPI_MCA_oob_tcp_if_include"), "lo") << "the user's own";
    EXPECT_STREQ(std::getenv("SLURM_JOB_ID"), "7") << "the job's";
    for (const char* name : {"OMPI_MCA_oob_tcp_if_include", "SLURM_JOB_ID"}) ::unsetenv(name);
}

TEST(Supervise, ASecondInterruptEndsAStubbornChildUnlessItComesWithinASecond) {
    const char* ignores = "trap '' USR2 TERM";
    const char* again = "for i in {1..150}; do sleep 0.2; kill -INT $PPID; done";
    EXPECT_EQ(supervise(after("INT", again, ignores), {}, at_work()), 130);
    EXPECT_EQ(supervise(after("INT", again, ignores), {}, not_begun()), 130);
    SupervisedRanks ranks = at_work();
    ranks.tell_early_end = [](ExitCode usual) { return static_cast<int>(usual) + 1000; };
    EXPECT_EQ(supervise(after("INT", again, ignores), {}, ranks), 1130);
    const char* at_once = "trap 'kill -INT $PPID; sleep 0.3; exit 0' USR2";
    EXPECT_EQ(supervise(after("INT", work, at_once), {}, at_work()), 0);
}

TEST(LaunchLimits, RaiseWhatMayBeRaisedAndNameWhatMayNot) {
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
    rlimit low = before;
    low.rlim_cur = 32;
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
    settle_limits(2);
    rlimit raised{};
    ::getrlimit(RLIMIT_NOFILE, &raised);
    ::setrlimit(RLIMIT_NOFILE, &before);
    EXPECT_GE(raised.rlim_cur, 48u);
    EXPECT_EQ(caught_code([] { settle_limits(1 << 28); }), "E693");
}

TEST(LaunchFolder, IsThereAndGoesAndTakesAbandonedOnesAlong) {
    std::filesystem::path path, abandoned;
    {
        const LaunchFolder folder(2);
        path = folder.path();
        EXPECT_TRUE(std::filesystem::is_directory(path));
        abandoned = path.parent_path() / "lockstep-launch-abandoned";
        std::filesystem::create_directory(abandoned);
        std::ofstream(abandoned / "lock") << "";
        const LaunchFolder second(2);
        EXPECT_TRUE(std::filesystem::exists(path)) << "a living launcher's folder stays";
        EXPECT_FALSE(std::filesystem::exists(abandoned));
    }
    EXPECT_FALSE(std::filesystem::exists(path));
    EXPECT_EQ(caught_code([] { const LaunchFolder folder(1 << 30); }), "E632");
}

}  // namespace
}  // namespace lockstep
