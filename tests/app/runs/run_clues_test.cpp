// SPDX-License-Identifier: Apache-2.0
// Runs that are made up: their ranks were on other hosts, and are gone.
#include "lockstep/core/clock.hpp"
#include "lockstep/core/host_name.hpp"
#include "lockstep/run/root_cause.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/run/verdict.hpp"

#include "command.hpp"
#include "support/unit.hpp"

#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>

#include <fmt/format.h>

namespace lockstep {
namespace {

/// A ring as it is on a host with another boot, `host`, that heard of its rank `ago_s` ago.
void move_away(std::string& ring, const std::string& host, double ago_s, double ahead_s) {
    const auto name = ring.find(host_name());
    ASSERT_NE(name, ring.npos);
    ring.replace(name, 64, host + std::string(64 - host.size(), '\0'));
    const auto boot = ring.find('-', name + 64);
    ASSERT_NE(boot, ring.npos);
    ring[boot + 1] = ring[boot + 1] == 'x' ? 'y' : 'x';
    for (std::size_t at = 0; at < 128; at += sizeof(double)) {
        double value = 0;
        std::memcpy(&value, ring.data() + at, sizeof value);
        if (!(std::abs(value - unix_time_s()) < 60)) continue;
        value += ahead_s - ago_s;
        std::memcpy(ring.data() + at, &value, sizeof value);
    }
}

class MadeUpRun : public InFolder {
  protected:
    MadeUpRun() {
        {
            RunDirectory run = RunDirectory::open(root_);
            run.create({});
            run.begin_incarnation();
            run.write_state({.step = 5, .reason = "checkpoint written", .steps_total = 40});
        }
        folder_.file("run/run.lock", R"({"by":"u@a","host":"a.invalid","pid":1,"since":"then"})");
        age();
    }

    /// Rank `rank` on `host`, heard of `ago_s` ago, whose clock is `ahead_s` ahead of rank 0's.
    void leave_rank(int rank, const std::string& host, double ago_s, double ahead_s = 0) {
        TempDir own;
        FlightRecorder recorder(own.path(), rank, 2);
        recorder.mark_running();
        recorder.beat();
        std::string ring = content_of(ring_path(own.path(), rank));
        move_away(ring, host, ago_s, ahead_s);
        folder_.file(fs::path("run/logs/i1/flight") / ring_path("", rank).filename(), ring);
        const double time_s = unix_time_s() - 700 + ahead_s;
        log(rank, host, time_s, {{"event", "clock"}, {"ahead_s", ahead_s}, {"error_s", 0.0}});
        log(rank, host, time_s + 1, {{"event", "first_step"}, {"step", 1}});
    }

    void log(int rank, const std::string& host, double time_s, Json fields) {
        fields["host"] = host;
        fields["rank"] = rank;
        fields["start"] = 1;
        fields["t"] = time_s;
        std::ofstream(root_ / fmt::format("logs/i1/rank-{:05}.jsonl", rank), std::ios::app)
            << fields.dump() << "\n";
        age();
    }

    /// Nobody has written for ten minutes.
    void age() const {
        const auto then = fs::file_time_type::clock::now() - std::chrono::minutes(10);
        for (const auto& entry : fs::recursive_directory_iterator(root_))
            if (entry.is_regular_file()) fs::last_write_time(entry.path(), then);
    }

    RunStatus status() const { return status_of_run(root_, StatusDepth::history); }

    const fs::path root_ = folder_ / "run";
};

TEST_F(MadeUpRun, IsToldByRankZerosClock) {
    for (const double ahead_s : {3600.0, -3600.0}) {
        leave_rank(0, "a.invalid", 600);
        leave_rank(1, "b.invalid", 620, ahead_s);
        const Diagnosis found = diagnosis_of(root_, 0);
        EXPECT_TRUE(found.is_over);
        EXPECT_EQ(found.verdict.trouble, Trouble::dead);
        EXPECT_THAT(found.verdict.culprits, ElementsAre(1));
        EXPECT_THAT(found.verdict.what, HasSubstr("no sign of life for 10m2"));
        const RunStatus told = status();
        EXPECT_EQ(told.condition, RunCondition::lost);
        EXPECT_THAT(told.trouble, StartsWith("rank dead: rank 1 (b.invalid"));
        EXPECT_EQ(told.reason, "") << "a saved checkpoint is no reason";
        EXPECT_LT(told.times.elapsed, 200);
        EXPECT_GT(told.times.elapsed, 50);
        const FirstError first = first_error(told, 1);
        EXPECT_THAT(first_error_text(told, 1, first), HasSubstr("rank 1 on b.invalid: rank dead"));
        EXPECT_THAT(first.next, StartsWith("lockstep diagnose "));
        fs::remove_all(root_ / "logs");
        fs::create_directories(root_ / "logs/i1");
    }
}

// The reader is on none of the hosts, and its clock is an hour behind.
TEST_F(MadeUpRun, IsOverThoughItsSignsOfLifeAreOfTheFuture) {
    leave_rank(0, "a.invalid", -3600);
    leave_rank(1, "b.invalid", -3590);
    const Diagnosis found = diagnosis_of(root_, 0);
    EXPECT_TRUE(found.is_over);
    EXPECT_EQ(found.verdict.trouble, Trouble::dead);
    EXPECT_EQ(status().condition, RunCondition::lost);
}

TEST_F(MadeUpRun, FailedForTheErrorOfARankThatCouldNotWriteTheState) {
    leave_rank(0, "a.invalid", 600);
    leave_rank(1, "b.invalid", 600);
    log(1,
        "b.invalid",
        unix_time_s() - 600,
        {{"event", "error"}, {"code", "E213"}, {"what", "'x' is damaged"}, {"fix", "copy it"}});
    const RunStatus told = status();
    EXPECT_EQ(told.condition, RunCondition::failed);
    EXPECT_EQ(told.reason, "E213: rank 1: 'x' is damaged");
    EXPECT_EQ(told.exit, 65);
    EXPECT_TRUE(told.fails_again());
    EXPECT_THAT(status_text(told), Not(HasSubstr("without a word")));
    EXPECT_THAT(status_text(told), Not(HasSubstr("goes on")));
    EXPECT_THAT(first_error_text(told, 1, first_error(told, 1)), HasSubstr("\n  fix: copy it\n"));
}

TEST_F(MadeUpRun, FailedForTheVerdictOfItsRanks) {
    leave_rank(0, "a.invalid", 20);
    leave_rank(1, "b.invalid", 20);
    claim_verdict(
        RunPaths{root_}.flight(1),
        {.trouble = Trouble::network_slow, .what = "all ranks are in #6", .fix = "cables"});
    const RunStatus told = status();
    EXPECT_EQ(told.condition, RunCondition::failed);
    EXPECT_EQ(told.reason, "E660: all ranks are in #6");
    const FirstError first = first_error(told, 1);
    EXPECT_THAT(first_error_text(told, 1, first), HasSubstr("start 1: ranks 0-1: network slow\n"));
    EXPECT_THAT(first.next, StartsWith("lockstep diagnose "));
}

TEST_F(MadeUpRun, NeverAdvisesTheCommandThatWasJustGiven) {
    for (const auto condition : {RunCondition::lost, RunCondition::failed}) {
        const RunStatus told{.root = root_, .condition = condition, .incarnation = 2};
        for (const std::int64_t start : {1, 2}) {
            EXPECT_THAT(next_command(told, start, AlreadyTold::cause, {}),
                        Not(HasSubstr("first-error")));
            EXPECT_THAT(next_command(told, start, AlreadyTold::cause, {}),
                        StartsWith("lockstep logs"));
        }
    }
}

TEST_F(MadeUpRun, GoesOnWhereItIsNow) {
    const fs::path moved = folder_ / "moved";
    {
        RunDirectory run = RunDirectory::open(moved);
        const auto given = [](const char* value) {
            return Json{{"value", value}, {"origin", "command line"}};
        };
        run.create({.config = {{"data", given("F")}, {"run", given("runs/a")}}});
    }
    const std::string line = "lockstep train --resume " + moved.string();
    EXPECT_EQ(resume_command(moved, "lockstep"), line);
    const fs::path here = fs::current_path();
    fs::current_path(folder_.path());
    EXPECT_EQ(resume_command("moved/", "lockstep"), line);
    EXPECT_EQ(resume_command(moved, "lockstep", {{"io-threads", "4"}}), line + " --io-threads 4");
    EXPECT_EQ(resume_command(moved, "lockstep", {{"run", "b"}}),
              fmt::format("(cd {} && lockstep train --data F --run {})",
                          here.string(),
                          (folder_ / "b").string()));
    fs::current_path(here);
}

}  // namespace
}  // namespace lockstep
