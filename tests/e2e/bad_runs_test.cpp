// SPDX-License-Identifier: Apache-2.0
// Runs that exist already, and surroundings in which no rank can start.
#include "lockstep/core/error.hpp"

#include "program.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace lockstep::test {
namespace {

class BadRuns : public testing::Test {
  protected:
    Words train(const Words& more) const {
        return Words{"train", "--data", data_, "--run", run_, "--model", "mlp"} + more;
    }
    TempDir folder_;
    const std::string data_ = train_data();
    const std::string run_ = folder_ / "run";
};

TEST_F(BadRuns, KeepTheSettingsThatDecideTheirResult) {
    ASSERT_THAT(run_lockstep(train({"--max-steps", "1"})), ends(0));
    EXPECT_THAT(
        run_lockstep(train({"--max-steps", "1", "--lr", "0.5", "--seed", "3"})),
        ends(78,
             testing::Eq(
                 "lockstep: error E306: run '" + run_ +
                 "' was made with other settings\n"
                 "  why: lr is 0.001 in the run, now 0.5 (from command line); seed is 1 in the "
                 "run, now 3 (from command line)\n"
                 "  fix: go on with --lr 0.001 --seed 1, or begin another run with its weights: "
                 "--from " +
                 run_ + ", and another --run\n")));
    EXPECT_THAT(run_lockstep(train({"--max-steps", "1", "--channels", "32"})).output,
                EndsWith("fix: go on without --channels, or use another run directory\n"))
        << "the weights would not fit";
}

TEST_F(BadRuns, GoOnWithoutDataByResumeOnly) {
    ASSERT_THAT(run_lockstep(train({"--max-steps", "1"})), ends(0));
    EXPECT_THAT(
        run_lockstep({"train", "--run", run_, "--max-steps", "2"}),
        ends(64, "E105", "fix: to go on with the run, give --resume " + run_ + " in place"));
    EXPECT_THAT(run_lockstep({"train", "--resume", run_, "--max-steps", "2"}), ends(0));
}

TEST_F(BadRuns, NeedTheirTrainingDataAndModelToBeUsed) {
    const fs::path moved = folder_ / "moved";
    fs::copy(data_, moved, fs::copy_options::recursive);
    ASSERT_THAT(
        run_lockstep(
            {"train", "--data", moved, "--run", run_, "--model", "mlp", "--max-steps", "1"}),
        ends(0));
    fs::remove_all(moved);
    const Words eval = {"eval", run_, "--data", data_};
    EXPECT_THAT(run_lockstep(eval), ends(0));
    fs::remove(run_ + "/data.json");  // as in runs of earlier versions
    EXPECT_THAT(run_lockstep(eval),
                ends(66, "E201", "fix: say with --train-data DIR where they are now"));
    EXPECT_THAT(run_lockstep(eval + Words{"--train-data", data_}), ends(0));
    EXPECT_THAT(
        run_lockstep(
            {"train", "--data", data_, "--run", folder_ / "none", "--model", folder_ / "none.pt"}),
        ends(66, "E201"));
}

TEST_F(BadRuns, BelongToOneJobAtATime) {
    const Words words = train({"--max-steps", "1", "--virtual-ranks", "2"});
    ASSERT_THAT(run_lockstep(words), ends(0));
    const UniqueFd lock(::open((run_ + "/run.lock").c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_EQ(::flock(lock.value(), LOCK_EX | LOCK_NB), 0);
    const std::string lease =
        R"({"by":"ada@n01","host":"n01","pid":812,"since":"2026-01-01T00:00:00.000Z"})";
    write_all(lock.value(), std::as_bytes(std::span(lease)), "run.lock");
    EXPECT_THAT(
        run_lockstep(words + Words{"--np", "2", "--oversubscribe"}),
        ends(
            69,
            testing::Eq(
                "lockstep: error E404: run '" + run_ +
                "' is in use (waited 20.0s)\n"
                "  why: its lock is held by process 812 on n01 (ada@n01) since "
                "2026-01-01T00:00:00.000Z\n"
                "  fix: 'lockstep stop " +
                run_ + "' makes it save and end; or wait for it, or use another run directory\n")));
}

TEST_F(BadRuns, AreNotStartedOnMoreRanksThanCores) {
    EXPECT_THAT(run_lockstep(train({"--np", "4096"})),
                ends(64,
                     MatchesRegex("lockstep: error E601: --np 4096 asks for more ranks than cores\n"
                                  "  why: this process may use [0-9]+ core\\(s\\)\n"
                                  "  fix: use --np [0-9]+, or --oversubscribe for a test\n")));
    EXPECT_FALSE(fs::exists(run_));
}

TEST_F(BadRuns, AreNotStartedByRootUnlessOpenMpiMay) {
    if (::geteuid() != 0) GTEST_SKIP() << "for root only";
    EXPECT_THAT(
        run_process(typed("env -u OMPI_ALLOW_RUN_AS_ROOT -u OMPI_ALLOW_RUN_AS_ROOT_CONFIRM %",
                          {program()}) +
                    train({"--np", "2"})),
        ends(77,
             testing::Eq("lockstep: error E603: Open MPI refuses to run as root\n"
                         "  why: a mistake as root can damage the whole system\n"
                         "  fix: use your own account; in a container: export "
                         "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\n")));
}

TEST_F(BadRuns, NeedMpirunOnThePath) {
    EXPECT_THAT(run_lockstep(train({"--np", "2"}), {{"PATH", folder_.path()}}),
                ends(66,
                     testing::Eq("lockstep: error E610: cannot start 'mpirun'\n"
                                 "  why: it is not on PATH\n"
                                 "  fix: install Open MPI, or load its module\n")));
}

TEST_F(BadRuns, NeedTheTrainerBesideTheProgram) {
    const fs::path alone = folder_ / "lockstep";
    fs::copy_file(program(), alone);
    const std::string message = "lockstep: error E610: cannot start '" + alone.string() +
                                "-train'\n"
                                "  why: it must be in the folder of lockstep, but is not there\n"
                                "  fix: build or install both programs into one folder\n";
    for (const char* ranks : {"1", "2"}) {
        const Words launch = {alone, "train", "--np", ranks, "--oversubscribe"};
        EXPECT_THAT(run_process(launch + Words{"--data", data_, "--run", run_}),
                    ends(66, testing::Eq(message)));
    }
    const Words mpirun =
        typed("mpirun -np 2 --oversubscribe --mca orte_execute_quiet 1 % train", {alone});
    EXPECT_THAT(run_process(mpirun + Words{"--data", data_, "--run", run_}),
                ends(66, testing::Eq(message)));
}

/// What somebody else, who may do little, is told. By commands that do not need LibTorch, which is
/// often in a home that others cannot see.
class BadInputsOfOthers : public RunsTest {
  protected:
    void SetUp() override {
        if (as_nobody({"version"}).exit_code != 0) GTEST_SKIP() << "nobody cannot start it";
        fs::permissions(train_data().parent_path(), fs::perms(0755));
        fs::permissions(folder_.path(), fs::perms(0755));
    }
    static ProcessResult as_nobody(const Words& words) {
        try {
            return run_process(
                Words{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", program()} +
                words);
        } catch (const Error&) {
            return {.exit_code = 127, .output = {}};
        }
    }
};

TEST_F(BadInputsOfOthers, NeedAFolderThatMayBeWritten) {
    EXPECT_THAT(as_nobody(typed("data pack --images % --labels % --out %",
                                {train_images(), train_labels(), folder_ / "new/out"})),
                ends(73,
                     testing::Eq("lockstep: error E401: cannot create folder '" +
                                 (folder_ / "new").string() +
                                 "': Permission denied\n"
                                 "  fix: use a folder that you may write to\n")));
}

TEST_F(BadInputsOfOthers, NeedDataThatMayBeRead) {
    copy_train_set(folder_ / "data");
    const std::string manifest = folder_ / "data/manifest.json";
    fs::permissions(manifest, fs::perms(0600));
    EXPECT_THAT(as_nobody({"data", "inspect", folder_ / "data"}),
                ends(77,
                     testing::Eq("lockstep: error E202: cannot open '" + manifest +
                                 "': Permission denied\n"
                                 "  fix: ask its owner, or use your own copy\n")));
}

}  // namespace
}  // namespace lockstep::test
