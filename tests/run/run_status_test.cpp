// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/run_status.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/run/run_directory.hpp"

#include "support/unit.hpp"

#include <chrono>
#include <fstream>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep {
namespace {

constexpr double t0 = 1.5e9;  // when the first start begins, long ago

// The log of rank 0, line by line.
class LogText {
  public:
    explicit LogText(double time_s, std::string host = "n1") : host_(std::move(host)) {
        add(time_s, "log", {});
    }

    LogText& first_step(double time_s, std::int64_t step) {
        return add(time_s, "first_step", {{"step", step}});
    }
    LogText& steps(double time_s, std::int64_t step, double wall_s, double save_s = 0) {
        return add(time_s,
                   "steps",
                   {{"step", step},
                    {"epoch", step / 15},
                    {"wall_s", wall_s},
                    {"phases", {{"checkpoint", save_s}}}});
    }
    LogText& evaluation(double time_s, double seconds) {
        return add(time_s, "evaluation", {{"seconds", seconds}});
    }
    LogText& torn() {
        text_ += "{\"t\": 19, \"event\": \"ste";
        return *this;
    }
    const std::string& text() const { return text_; }

  private:
    LogText& add(double time_s, const char* event, Json fields) {
        fields["event"] = event;
        fields["t"] = time_s;
        fields["host"] = host_;
        text_ += fields.dump() + "\n";
        return *this;
    }

    std::string host_, text_;
};

class Status : public InFolder {
  protected:
    RunDirectory open() const { return RunDirectory::open(root_); }

    /// Makes the run, if there is none, and begins a start that writes `state`.
    RunDirectory started(const RunState& state) const {
        RunDirectory run = open();
        if (run.is_new()) run.create({});
        run.begin_incarnation();
        run.write_state(state);
        return run;
    }

    /// The run as a first start leaves it that was killed: state `running`, its lease still there.
    void leave_killed(const std::string& host, std::int64_t pid) {
        started({.step = 5, .steps_total = 40});
        folder_.file(
            "run/run.lock",
            fmt::format(
                R"({{"by": "u@{0}", "host": "{0}", "pid": {1}, "since": "then"}})", host, pid));
    }
    /// An hour.
    void make_old(std::initializer_list<const char*> names) const {
        const auto long_ago = fs::file_time_type::clock::now() - std::chrono::hours(1);
        for (const char* name : names) fs::last_write_time(root_ / name, long_ago);
    }
    void log(std::int64_t incarnation, const LogText& text) {
        folder_.file(fmt::format("run/logs/i{}/rank-00000.jsonl", incarnation), text.text());
    }
    RunStatus status(StatusClues clues = {}) const {
        if (clues.now_unix_s == 0) clues.now_unix_s = unix_time_s();
        return read_run_status(root_, clues);
    }

    const fs::path root_ = folder_ / "run";
};

TEST_F(Status, IsStartingUntilTheNewestStartHasSaidSomething) {
    auto run = open();
    run.create({});
    EXPECT_EQ(status().condition, RunCondition::starting);
    run.begin_incarnation();
    EXPECT_EQ(status().condition, RunCondition::starting);
    run.write_state({.step = 3, .epoch = 1, .steps_total = 10});
    EXPECT_EQ(status().condition, RunCondition::running);
    EXPECT_THAT(status().holder, has(fmt::format("process {} on ", ::getpid())));
    run.begin_incarnation();
    EXPECT_EQ(status().condition, RunCondition::starting);
}

TEST_F(Status, IsWhatTheRunSaidWhenItEnded) {
    for (const auto& [phase, condition] :
         {std::pair(RunPhase::checkpointed, RunCondition::checkpointed),
          std::pair(RunPhase::complete, RunCondition::complete),
          std::pair(RunPhase::failed, RunCondition::failed)}) {
        started({.phase = phase, .step = 7, .reason = "why", .exit = 9});
        const RunStatus found = status();
        EXPECT_EQ(found.condition, condition);
        EXPECT_FALSE(found.is_alive());
        EXPECT_EQ(found.step, 7);
        EXPECT_EQ(found.exit, 9);
        EXPECT_THAT(status_text(found), has("why"));
    }
}

TEST_F(Status, RecognisesARunWhoseProcessWasKilled) {
    const auto child = ::fork();
    if (child == 0) {
        const RunDirectory run = started({.step = 5, .steps_total = 40});
        ::raise(SIGKILL);
    }
    ::waitpid(child, nullptr, 0);
    const RunStatus found = status({.heartbeat_unix_s = unix_time_s(), .saved_step = 4});
    EXPECT_EQ(found.condition, RunCondition::lost);
    EXPECT_THAT(status_text(found), has(fmt::format("process {} on ", child)));
    EXPECT_THAT(status_text(found), has("goes on from step 4"));
}

// Where the file system does not carry locks between hosts, signs of life decide: but for those of
// the future, of a host whose clock is ahead of this one, by nobody knows how much.
TEST_F(Status, BelievesSignsOfLifeOfAnotherHost) {
    using enum RunCondition;
    leave_killed("elsewhere.invalid", 1);
    EXPECT_EQ(status({.heartbeat_unix_s = unix_time_s() - 6}).condition, running);
    EXPECT_EQ(status({.heartbeat_unix_s = unix_time_s() - 6, .has_ended = true}).condition, lost);
    make_old({"run.lock", "state.json"});
    const double now = unix_time_s();
    for (const auto& [after_s, condition] :
         {std::pair(-60, running), {1, running}, {-600, lost}, {3600, lost}})
        EXPECT_EQ(status({.heartbeat_unix_s = now + after_s}).condition, condition) << after_s;
    EXPECT_EQ(status().condition, lost);
    fs::last_write_time(root_ / "state.json", fs::file_time_type::clock::now());
    EXPECT_EQ(status().condition, running);
}

// Rank 0 of the first start was on a host whose clock is wrong by an hour.
TEST_F(Status, TellsAllStartsByOneClock) {
    for (const double ahead_s : {3600.0, -3600.0}) {
        leave_killed("elsewhere.invalid", 1);
        open().begin_incarnation();
        const double wrong_s = t0 + ahead_s;
        log(1, LogText(wrong_s, "n1").first_step(wrong_s, 1).steps(wrong_s + 10, 20, 10));
        log(2, LogText(t0 + 15, "n2").first_step(t0 + 15, 21).steps(t0 + 25, 40, 10));
        const RunClock clock(
            {{.rank = 0, .host = "n2"}, {.rank = 1, .host = "n1", .clock_ahead_s = ahead_s}});
        const RunStatus found = status({.now_unix_s = t0 + 1000, .clock = clock, .saved_step = 40});
        EXPECT_NEAR(found.times.elapsed, 25, 1e-6);
        EXPECT_NEAR(found.times.training, 20, 1e-6);
        EXPECT_NEAR(found.times.down, 5, 1e-6);
        fs::remove_all(root_);
    }
}

TEST_F(Status, DoesNotSayThatWhatFailedForAReasonGoesOn) {
    RunStatus failed{.condition = RunCondition::failed};
    for (const ExitCode exit : {ExitCode::usage, ExitCode::bad_data, ExitCode::config}) {
        failed.exit = static_cast<int>(exit);
        EXPECT_TRUE(failed.fails_again()) << failed.exit;
    }
    EXPECT_EQ(going_on_label(failed), "to resume, after that is fixed");
    for (const ExitCode exit : {ExitCode::peer_lost, ExitCode::saved_please_requeue}) {
        failed.exit = static_cast<int>(exit);
        EXPECT_FALSE(failed.fails_again()) << failed.exit;
    }
    EXPECT_EQ(going_on_label(failed), "to go on");
}

TEST_F(Status, DoesNotDisturbWhoTakesTheLock) {
    leave_killed("elsewhere.invalid", 1);
    status();
    EXPECT_NO_THROW(open());
}

TEST_F(Status, SaysWhenARunningRunWillBeDone) {
    const RunDirectory run = started({.step = 0, .steps_total = 100});
    log(1, LogText(t0).first_step(t0 + 2, 1).steps(t0 + 12, 20, 10).steps(t0 + 22, 40, 10));
    const RunStatus found = status({.now_unix_s = t0 + 25});
    EXPECT_EQ(found.step, 40);
    EXPECT_EQ(found.epoch, 2);
    EXPECT_NEAR(found.eta_s, 60 * 0.5 - 3, 1e-9);
    EXPECT_THAT(status_text(found), has("40 of 100 (40 %)", "done in     27.0s"));
}

TEST_F(Status, PromisesNothingByRatesOfLongAgo) {
    const RunDirectory run = started({.step = 0, .steps_total = 100});
    log(1, LogText(t0).first_step(t0 + 2, 1).steps(t0 + 22, 40, 20));
    EXPECT_GE(status({.now_unix_s = t0 + 100}).eta_s, 0);
    const RunStatus found = status({.now_unix_s = t0 + 1222});
    EXPECT_LT(found.eta_s, 0);
    EXPECT_THAT(status_text(found), has("reported    20m00s ago, for the last time"));
    EXPECT_EQ(status_json(found)["eta_s"], Json());
}

TEST_F(Status, IsStuckWhereItsRanksAreInTrouble) {
    {
        RunDirectory run = started({.step = 5, .steps_total = 40});
        const RunStatus found = status({.trouble = "rank dead: rank 1 (n2)"});
        EXPECT_EQ(found.condition, RunCondition::stuck);
        EXPECT_TRUE(found.is_alive()) << "somebody still holds it";
        EXPECT_LT(found.eta_s, 0);
        EXPECT_THAT(status_text(found), has("trouble     rank dead: rank 1 (n2)\n"));
        run.write_state({.phase = RunPhase::failed, .reason = "E660"});
    }
    EXPECT_EQ(status({.trouble = "rank dead"}).condition, RunCondition::failed);
}

// root may look everywhere: a child that is somebody else must not take what it cannot see for
// absent.
TEST_F(Status, DoesNotCallAbsentWhatItMayNotSee) {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
    { open().create({}); }
    ::chmod(root_.c_str(), 0700);
    ::chmod(folder_.path().c_str(), 0711);
    const auto child = ::fork();
    if (child == 0) {
        constexpr uid_t nobody = 65534;
        const bool is_right = ::setuid(nobody) == 0 && caught_code([&] { status(); }) == "E202" &&
                              caught_code([&] { check_is_there(root_ / "x"); }) == "E202";
        ::_exit(is_right ? 0 : 1);
    }
    int ended = -1;
    ::waitpid(child, &ended, 0);
    EXPECT_EQ(ended, 0);
}

TEST_F(Status, DividesTimeIntoWhatCountsAndWhatIsLost) {
    started({});
    started({.phase = RunPhase::complete, .step = 40, .steps_total = 40});
    log(1,
        LogText(t0).first_step(t0 + 3, 1).steps(t0 + 13, 10, 10, 2).steps(t0 + 23, 20, 10).torn());
    log(2,
        LogText(t0 + 30)
            .first_step(t0 + 34, 16)
            .steps(t0 + 44, 40, 10)
            .evaluation(t0 + 47, 3)
            .steps(t0 + 48, 40, 0));
    const RunStatus found = status({.now_unix_s = t0 + 1000, .saved_step = 40});
    const RunTimes& times = found.times;
    EXPECT_NEAR(times.elapsed, 48, 1e-9);
    EXPECT_NEAR(times.training, 8 + 5 + 10, 1e-9) << "steps 16 to 20 were done twice";
    EXPECT_NEAR(times.repeated, 5, 1e-9);
    EXPECT_NEAR(times.saving, 2, 1e-9);
    EXPECT_NEAR(times.evaluating, 3, 1e-9);
    EXPECT_NEAR(times.starting, 3 + 4, 1e-9);
    EXPECT_NEAR(times.down, 7, 1e-9);
    EXPECT_NEAR(times.other, 1, 1e-9);
    EXPECT_NEAR(times.goodput(), 23.0 / 48, 1e-9);
    ASSERT_EQ(found.starts.size(), 2u);
    EXPECT_EQ(found.starts[1].from_step, 15);
    EXPECT_THAT(status_text(found), has("48 % of 48.0s"));
    EXPECT_THAT(status_text(found), has("steps done again or lost 5.0s", "steps 15 to 40"));
}

TEST_F(Status, DividesTimeIfTheNewestStartFoundTheRunComplete) {
    started({});
    started({.phase = RunPhase::complete, .step = 20, .steps_total = 20});
    log(1, LogText(t0).first_step(t0 + 3, 1).steps(t0 + 23, 20, 20));
    log(2, LogText(t0 + 30).evaluation(t0 + 32, 1));
    const RunStatus found = status({.now_unix_s = t0 + 1000, .saved_step = 20});
    EXPECT_NEAR(found.times.elapsed, 32, 1e-9);
    EXPECT_NEAR(found.times.training, 20, 1e-9);
    EXPECT_NEAR(found.times.down, 7, 1e-9);
}

TEST_F(Status, CountsNothingBeyondTheNewestCheckpointOfALostRun) {
    leave_killed("elsewhere.invalid", 1);
    log(1, LogText(t0).first_step(t0, 1).steps(t0 + 20, 20, 20));
    make_old({"run.lock", "state.json", "logs/i1/rank-00000.jsonl"});
    EXPECT_NEAR(status({.saved_step = 5}).times.training, 5, 1e-9);
    const RunStatus unsaved = status({.heartbeat_unix_s = t0 + 25});
    EXPECT_EQ(unsaved.times.training, 0);
    EXPECT_NEAR(unsaved.times.repeated, 20, 1e-9);
    EXPECT_NEAR(unsaved.times.other, 5, 1e-9);
}

// Steps were kept, and no report says how long they took.
TEST_F(Status, TellsNoGoodputOfAStartThatEndedBeforeItsFirstReport) {
    started({.phase = RunPhase::failed, .step = 20, .steps_total = 40});
    log(1, LogText(t0).first_step(t0 + 3, 1));
    const RunStatus found = status({.now_unix_s = t0 + 1000, .saved_step = 20});
    EXPECT_THAT(status_text(found), has("| from step 0, without a report"));
    EXPECT_THAT(status_text(found), Not(has("goodput")));
    EXPECT_EQ(status_json(found)["goodput"], Json());
    EXPECT_EQ(status_json(found)["seconds"], Json());
    EXPECT_THAT(status_text(status({.now_unix_s = t0 + 1000, .saved_step = 0})), has("0 % of"))
        << "all its steps are lost";
}

TEST_F(Status, ShowsWhatWasAskedAndNotMetYet) {
    RunDirectory run = started({});
    ask_run(root_, ControlAction::stop_after_checkpoint, 1);
    EXPECT_THAT(status_text(status()), has("to stop after checkpoint"));
    run.control_request();
    EXPECT_EQ(status_json(status())["asked"], "stop after checkpoint");
    folder_.file("run/control.taken.json", "{");
    EXPECT_FALSE(status().asked);
}

TEST_F(Status, SurvivesStatesOfEarlierVersions) {
    { open().create({}); }
    folder_.file("run/state.json",
                 R"({"phase": "complete", "step": 9, "epoch": 1, "reason": "", "exit": 0,
                     "updated": ""})");
    EXPECT_EQ(status().condition, RunCondition::complete);
    EXPECT_THAT(status_text(status()), has("step        9, epoch 1\n"));
}

TEST_F(Status, RefusesWhatIsNoRun) {
    EXPECT_EQ(caught_code([&] { status(); }), "E201");
    fs::create_directory(root_);
    EXPECT_EQ(caught_code([&] { status(); }), "E688");
    { open().create({}); }
    folder_.file("run/state.json", "{");
    EXPECT_EQ(caught_code([&] { status(); }), "E222");
}

// Bytes that this process has read from files.
std::int64_t bytes_read() {
    std::string name;
    std::int64_t value = -1;
    std::ifstream("/proc/self/io") >> name >> value;
    return name == "rchar:" ? value : -1;
}

enum class LogKind { with_sums, without_sums };

// 10,000 reports of twenty steps, 2 s and more each; every fiftieth saves, and is evaluated after.
std::string long_log(LogKind kind, std::int64_t from_step) {
    std::string text =
        R"({"event":"first_step","t":100,"step":)" + std::to_string(from_step + 1) + "}\n";
    double time_s = 100, train_s = 0, save_s = 0, evaluate_s = 0;
    for (int i = 1; i <= 10'000; ++i) {
        const double saved_s = i % 50 == 0 ? 0.25 : 0, wall_s = 2 + (i % 7) * 0.25 + saved_s;
        time_s += wall_s;
        train_s += wall_s - saved_s;
        save_s += saved_s;
        Json record{{"event", "steps"},
                    {"t", time_s},
                    {"step", from_step + 20 * i},
                    {"epoch", i / 50},
                    {"wall_s", wall_s},
                    {"phases", {{"checkpoint", saved_s}}},
                    {"rest", std::string(1900, 'x')}};
        if (kind == LogKind::with_sums)
            record["so_far"] = {
                {"train_s", train_s}, {"save_s", save_s}, {"evaluate_s", evaluate_s}};
        text += record.dump() + "\n";
        if (i % 50 != 0) continue;
        time_s += 2;
        evaluate_s += 2;
        text += Json{{"event", "evaluation"}, {"t", time_s}, {"seconds", 2}}.dump() + "\n";
    }
    return text;
}

// Two starts; the second goes on in the middle of one of the first one's reports.
class LongLog : public Status {
  protected:
    LongLog() {
        leave_killed("elsewhere", 1);
        open().begin_incarnation();
    }

    RunStatus status_of(LogKind kind) {
        folder_.file("run/logs/i1/rank-00000.jsonl", long_log(kind, 0));
        folder_.file("run/logs/i2/rank-00000.jsonl", long_log(kind, 77'774));
        return read_status();
    }
    RunStatus read_status() {
        const std::int64_t before = bytes_read();
        const RunStatus found = status({.saved_step = 250'003});
        bytes_ = bytes_read() - before;
        return found;
    }

    std::int64_t bytes_ = 0;
};

// What a model prints between two reports is in the log, too: here over a mebibyte of it.
TEST_F(LongLog, HasItsReportsLookedForBetweenOthersWords) {
    const std::string text = long_log(LogKind::with_sums, 0);
    const std::size_t last = text.rfind("{\"event\":\"steps\"");
    std::string words;
    while (words.size() < 3 << 20)
        words += "{\"event\":\"stderr\",\"t\":30000,\"text\":\"noise\"}\n";
    folder_.file("run/logs/i1/rank-00000.jsonl", text.substr(0, last) + words + text.substr(last));
    const RunStatus found = read_status();
    EXPECT_LT(bytes_, 20 << 20);
    ASSERT_EQ(found.starts.size(), 1u);
    EXPECT_EQ(found.starts[0].to_step, 200'000);
    EXPECT_GT(found.starts[0].train_s, 20'000);
}

TEST_F(LongLog, IsReadAtItsEndsOnlyAndTellsTheSameAsAllOfIt) {
    const RunStatus whole = status_of(LogKind::without_sums);
    EXPECT_GT(bytes_, 20 << 20);
    const RunStatus ends = status_of(LogKind::with_sums);
    EXPECT_GT(bytes_, 0);
    EXPECT_LT(bytes_, 4 << 20) << "of 40 MB";
    ASSERT_EQ(whole.starts.size(), 2u);
    ASSERT_EQ(ends.starts.size(), 2u);
    for (std::size_t i = 0; i < 2; ++i) {
        const StartRecord &a = whole.starts[i], &b = ends.starts[i];
        EXPECT_EQ(std::tie(a.from_step, a.to_step, a.epoch),
                  std::tie(b.from_step, b.to_step, b.epoch));
        EXPECT_DOUBLE_EQ(a.began_unix_s, b.began_unix_s);
        EXPECT_DOUBLE_EQ(a.ended_unix_s, b.ended_unix_s);
        EXPECT_DOUBLE_EQ(a.first_report_s, b.first_report_s);
        EXPECT_DOUBLE_EQ(a.step_s, b.step_s);
        EXPECT_DOUBLE_EQ(a.evaluate_s, b.evaluate_s);
        EXPECT_NEAR(a.train_s, b.train_s, 1e-6);
        EXPECT_NEAR(a.save_s, b.save_s, 1e-6);
        EXPECT_NEAR(a.kept_s, b.kept_s, 1e-6);
        EXPECT_GT(a.kept_s, 1000);
        EXPECT_LT(a.kept_s, a.train_s - 1000);
    }
}

}  // namespace
}  // namespace lockstep
