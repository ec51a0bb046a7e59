// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/run_directory.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/run/run_status.hpp"

#include "support/unit.hpp"

#include <array>
#include <set>
#include <stop_token>
#include <thread>

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep {
namespace {

unsigned mode_of(const fs::path& path) {
    struct stat facts {};
    EXPECT_EQ(::stat(path.c_str(), &facts), 0) << path;
    return facts.st_mode & 07777;
}

RunRecord record_of(const Json& deciding) {
    RunRecord record;
    record.config = {{"lr", {{"value", 0.1}, {"origin", "train.toml:3:1"}}}};
    record.deciding = deciding;
    record.contract = {{"virtual_ranks", 4}};
    record.versions = {{"lockstep", "0.1.0"}};
    return record;
}

std::vector<std::string> files_in(const fs::path& folder) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder))
        names.push_back(entry.path().filename().string());
    return names;
}

class RunDirectoryTest : public InFolder {
  protected:
    RunDirectory open(double wait_s = 0) const { return RunDirectory::open(root_, wait_s); }

    fs::path root_ = folder_ / "runs/a";
};

TEST_F(RunDirectoryTest, IsCreatedForItsOwnerAlone) {
    auto run = open();
    run.create(record_of({}));
    run.begin_incarnation();
    run.write_state({});
    for (const auto& path : {root_, run.logs(), run.paths().checkpoints()}) {
        EXPECT_EQ(mode_of(path), 0700u) << path;
    }
    for (const auto* name : {"run.json", "state.json", "run.lock", "incarnation"}) {
        EXPECT_EQ(mode_of(root_ / name), 0600u) << name;
    }
}

TEST_F(RunDirectoryTest, KeepsItsRecordWithAnIdOfItsOwn) {
    std::string id;
    { const auto crashed = open(); }
    {
        auto run = open();
        EXPECT_TRUE(run.is_new());
        id = run.create(record_of({{"seed", 1}})).run_id;
        EXPECT_FALSE(run.is_new());
    }
    const auto run = open();
    ASSERT_FALSE(run.is_new());
    EXPECT_THAT(id, MatchesRegex("[0-9a-f]{32}"));
    EXPECT_EQ(run.record().run_id, id);
    EXPECT_THAT(run.record().created_by, MatchesRegex(".+@.+"));
    EXPECT_EQ(run.record().config["lr"]["origin"], "train.toml:3:1");
    EXPECT_EQ(run.record().contract["virtual_ranks"], 4);
    EXPECT_EQ(read_run_record(root_).versions["lockstep"], "0.1.0");
    std::set<std::string> ids;
    for (int i = 0; i < 10; ++i)
        ids.insert(RunDirectory::open(folder_ / std::to_string(i)).create({}).run_id);
    EXPECT_EQ(ids.size(), 10u);
}

TEST_F(RunDirectoryTest, RefusesAFolderOfOtherFiles) {
    folder_.file("runs/a/thesis.txt", "x");
    EXPECT_EQ(caught_code([&] { open(); }), "E407");
    EXPECT_FALSE(fs::exists(root_ / "run.lock"));
}

TEST_F(RunDirectoryTest, RefusesFoldersThatAreLinks) {
    { open().create({}); }
    folder_.file("victim/precious", "x");
    for (const char* name : {"ckpt", "logs", "ledger"}) {
        fs::create_directory_symlink(folder_ / "victim", root_ / name);
        EXPECT_EQ(caught_code([&] { open(); }), "E220") << name;
        fs::remove(root_ / name);
    }
    make_directories(root_ / "logs");
    fs::create_directory_symlink(folder_ / "victim", root_ / "logs/i1");
    EXPECT_EQ(caught_code([&] { open().begin_incarnation(); }), "E220");
    EXPECT_THAT(files_in(folder_ / "victim"), ElementsAre("precious"));
}

TEST_F(RunDirectoryTest, MayBeALinkItself) {
    make_directories(folder_ / "scratch/a");
    make_directories(root_.parent_path());
    fs::create_directory_symlink(folder_ / "scratch/a", root_);
    open().begin_incarnation();
    EXPECT_TRUE(fs::is_directory(folder_ / "scratch/a/ckpt"));
}

TEST_F(RunDirectoryTest, RefusesADamagedRecordAndAStateItDoesNotKnow) {
    { open().create({}); }
    folder_.file("runs/a/run.json", "{\"format_version\": 1, \"run_id\": 7}");
    EXPECT_EQ(caught_code([&] { open(); }), "E222");
    folder_.file("runs/a/run.json", "{\"format_version\": 99}");
    EXPECT_EQ(caught_code([&] { open(); }), "E305");
    folder_.file("runs/a/state.json", "{\"phase\": \"dreaming\"}");
    EXPECT_EQ(caught_code([&] { read_run_state(root_); }), "E222");
}

TEST_F(RunDirectoryTest, BelongsToOneProcessAtATime) {
    const auto first = open();
    const Error error = test::error_of([&] { open(); });
    EXPECT_EQ(error.code(), "E404");
    EXPECT_THAT(error.what(), HasSubstr(root_.string()));
    EXPECT_THAT(error.why(), has("process " + std::to_string(::getpid()) + " on ", " since 20"));
    folder_.file("runs/a/run.lock", "\033[31m{");
    EXPECT_THAT(caught([&] { open(); })->why(), HasSubstr("has not written its name"));
}

TEST_F(RunDirectoryTest, IsFreeAgainWhenClosed) {
    { const auto run = open(); }
    EXPECT_EQ(content_of(root_ / "run.lock"), "");
    EXPECT_NO_THROW(open());
}

TEST_F(RunDirectoryTest, WaitsForAHolderThatIsKilled) {
    std::array<int, 2> pipe{};
    ASSERT_EQ(::pipe(pipe.data()), 0);
    const auto child = ::fork();
    if (child == 0) {
        const auto run = open();
        char ready = 'r';
        if (::write(pipe[1], &ready, 1) != 1) ::_exit(1);
        for (;;) ::pause();
    }
    char ready = 0;
    ASSERT_EQ(::read(pipe[0], &ready, 1), 1);
    EXPECT_EQ(caught_code([&] { open(); }), "E404");
    const auto before = now_s();
    EXPECT_EQ(caught_code([&] { open(0.3); }), "E404");
    EXPECT_GE(now_s() - before, 0.3);
    const auto killer = ::fork();
    if (killer == 0) {
        ::usleep(100'000);
        ::kill(child, SIGKILL);
        ::_exit(0);
    }
    EXPECT_NO_THROW(open(20));
    ::waitpid(child, nullptr, 0);
    ::waitpid(killer, nullptr, 0);
    ::close(pipe[0]);
    ::close(pipe[1]);
}

/// What SLURM tells the processes of a job, for as long as it lives.
struct JobVariables {
    JobVariables(const char* job, const char* restarts) {
        ::setenv("SLURM_JOB_ID", job, 1);
        ::setenv("SLURM_RESTART_COUNT", restarts, 1);
    }
    ~JobVariables() {
        ::unsetenv("SLURM_JOB_ID");
        ::unsetenv("SLURM_RESTART_COUNT");
    }
    JobVariables& operator=(JobVariables&&) = delete;
};

// A node that SLURM has lost still runs the first start, which holds the lock.
TEST_F(RunDirectoryTest, IsTakenOverFromAnEarlierStartOfTheSameJob) {
    std::optional<JobVariables> job(std::in_place, "7", "0");
    auto old = open();
    old.begin_incarnation();
    job.emplace("7", "1");
    auto next = open();
    EXPECT_EQ(next.begin_incarnation(), 2);
    EXPECT_EQ(caught_code([&] { old.write_state({.step = 6}); }), "E408");
    next.write_state({.step = 5});
    job.emplace("8", "5");
    EXPECT_EQ(caught_code([&] { open(); }), "E404");
    EXPECT_FALSE(fs::exists(root_ / "run.lock.new"));
}

TEST_F(RunDirectoryTest, IsNotTakenOverFromOthers) {
    std::optional<JobVariables> job(std::in_place, "7", "1");
    const auto holder = open();
    for (const char* restarts : {"0", "1", "x", ""}) {
        job.emplace("7", restarts);
        EXPECT_EQ(caught_code([&] { open(); }), "E404") << restarts;
    }
    job.emplace("17", "2");
    EXPECT_EQ(caught_code([&] { open(); }), "E404");
    job.reset();
    EXPECT_EQ(caught_code([&] { open(); }), "E404");
}

TEST_F(RunDirectoryTest, NamesEverySettingThatDiffers) {
    EXPECT_NO_THROW(
        check_same_deciding(root_, {{"seed", 1}, {"lr", 0.1}}, {{"lr", 0.1}, {"seed", 1}}));
    const Error error = test::error_of([&] {
        check_same_deciding(root_,
                            {{"lr", 0.1}, {"model", "cnn"}, {"seed", 1}, {"old", true}},
                            {{"lr", 0.2}, {"model", "cnn"}, {"seed", 2}, {"new", "x"}},
                            {{"lr", "--lr"}});
    });
    EXPECT_EQ(error.code(), "E306");
    EXPECT_EQ(error.why(),
              "lr is 0.1 in the run, now 0.2 (from --lr); seed is 1 in the run, now 2; old is true "
              "in the run, now not set; new is not set in the run, now \"x\"");
}

TEST_F(RunDirectoryTest, CountsItsIncarnations) {
    for (std::int64_t expected = 1; expected <= 3; ++expected) {
        auto run = open();
        EXPECT_EQ(run.incarnation(), 0);
        EXPECT_EQ(run.begin_incarnation(), expected);
        EXPECT_EQ(run.logs(), root_ / ("logs/i" + std::to_string(expected)));
        EXPECT_TRUE(fs::is_directory(run.logs()));
    }
    EXPECT_EQ(content_of(root_ / "incarnation"), "3\n");
}

TEST_F(RunDirectoryTest, RefusesAnIncarnationThatIsNoNumber) {
    auto run = open();
    for (const char* text : {"-3\n", "many\n", "9223372036854775807\n"}) {
        folder_.file("runs/a/incarnation", text);
        EXPECT_EQ(caught_code([&] { run.begin_incarnation(); }), "E222") << text;
        EXPECT_EQ(caught_code([&] { read_incarnation(root_); }), "E222") << text;
    }
}

TEST_F(RunDirectoryTest, WritesNothingOnceItWasTakenOver) {
    auto run = open();
    run.begin_incarnation();
    run.write_state({.step = 5});
    EXPECT_NO_THROW(run.check_still_ours());
    folder_.file("runs/a/incarnation", "2\n");
    EXPECT_EQ(caught_code([&] { run.check_still_ours(); }), "E408");
    EXPECT_EQ(caught_code([&] { run.write_state({.step = 6}); }), "E408");
    EXPECT_EQ(read_run_state(root_)->step, 5);
}

TEST_F(RunDirectoryTest, WritesNothingOnceItsFolderWasMoved) {
    auto run = open();
    run.begin_incarnation();
    fs::rename(root_, folder_ / "runs/b");
    const Error error = test::error_of([&] { run.write_state({.step = 6}); });
    EXPECT_EQ(error.code(), "E410");
    EXPECT_THAT(error.what(), HasSubstr("is no longer there"));
    EXPECT_FALSE(fs::exists(root_));
}

TEST_F(RunDirectoryTest, TellsHowFarItGot) {
    auto run = open();
    run.begin_incarnation();
    EXPECT_EQ(read_run_state(root_), std::nullopt);
    run.write_state({.phase = RunPhase::checkpointed,
                     .step = 400,
                     .epoch = 2,
                     .reason = "signal USR1",
                     .exit = 75});
    const auto state = read_run_state(root_);
    ASSERT_TRUE(state);
    EXPECT_EQ(state->phase, RunPhase::checkpointed);
    EXPECT_EQ(state->step, 400);
    EXPECT_EQ(state->epoch, 2);
    EXPECT_EQ(state->reason, "signal USR1");
    EXPECT_EQ(state->exit, 75);
    EXPECT_THAT(state->updated, MatchesRegex("20.*Z"));
}

TEST_F(RunDirectoryTest, KeepsTheFailureThatAnotherRankNoted) {
    RunDirectory run = open();
    const std::int64_t start = run.begin_incarnation();
    write_failed_state(root_, start, "E213: rank 1: damaged", ExitCode::bad_data);
    run.write_state({.phase = RunPhase::running});
    EXPECT_EQ(read_run_state(root_)->phase, RunPhase::failed);
    run.write_state({.phase = RunPhase::failed, .reason = "rank 0's own"});
    EXPECT_EQ(read_run_state(root_)->reason, "rank 0's own");
}

TEST_F(RunDirectoryTest, KeepsAFailureThatRankZeroWritesOver) {
    RunDirectory run = open();
    const std::int64_t start = run.begin_incarnation();
    run.write_state({.phase = RunPhase::running});
    const std::string running = content_of(root_ / "state.json");
    std::jthread rank_zero([&](const std::stop_token& stop) {
        while (!stop.stop_requested())
            if (read_run_state(root_)->phase == RunPhase::failed)
                return write_file_atomically(root_ / "state.json", running);
    });
    write_failed_state(root_, start, "E213: rank 1: damaged", ExitCode::bad_data);
    rank_zero.request_stop();
    rank_zero.join();
    EXPECT_EQ(read_run_state(root_)->reason, "E213: rank 1: damaged");
}

TEST_F(RunDirectoryTest, IsFoundBelowAFolder) {
    for (const auto* name : {"b", "a"}) RunDirectory::open(folder_ / name).create({});
    folder_.file("c/notes.txt", "x");
    folder_.file("d.txt", "x");
    EXPECT_THAT(find_runs(folder_.path()), ElementsAre(folder_ / "a", folder_ / "b"));
    EXPECT_THAT(find_runs(folder_ / "a"), ElementsAre(folder_ / "a"));
    for (const auto* name : {"c/study/1x2", "a/inner", "a/logs/x"})
        RunDirectory::open(folder_ / name).create({});
    EXPECT_THAT(
        find_runs(folder_.path()),
        ElementsAre(folder_ / "a", folder_ / "a/inner", folder_ / "b", folder_ / "c/study/1x2"));
    EXPECT_EQ(caught_code([&] { find_runs(folder_ / "d.txt"); }), "E201");
}

TEST_F(RunDirectoryTest, WarnsWhenAnyoneMayWrite) {
    const auto run = open();
    EXPECT_THAT(run.warnings(), IsEmpty());
    ASSERT_EQ(::chmod(root_.c_str(), 0777), 0);
    EXPECT_THAT(run.warnings(), ElementsAre(HasSubstr("W402")));
    EXPECT_THAT(run.warnings(), ElementsAre(HasSubstr("mode 0777")));
}

TEST_F(RunDirectoryTest, WarnsRootInTheFolderOfAnotherUser) {
    const auto run = open();
    EXPECT_THAT(run.warnings(), IsEmpty()) << "whoever it is, in an own folder";
    if (::geteuid() != 0) GTEST_SKIP() << "only root, as in CI, can give a folder away";
    ASSERT_EQ(::chown(root_.c_str(), 4242, 0), 0);
    EXPECT_THAT(run.warnings(), ElementsAre(HasSubstr("/runs/a' of user 4242")));
    ASSERT_EQ(::chown(root_.parent_path().c_str(), 4243, 0), 0);
    EXPECT_THAT(run.warnings(), ElementsAre(HasSubstr("/runs' of user 4243")));
}

}  // namespace
}  // namespace lockstep
