// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/watchdog.hpp"

#include "flight_children.hpp"
#include "support/unit.hpp"

#include <signal.h>
#include <unistd.h>

namespace lockstep {
namespace {

using test::call;
using test::has_ring;
using test::Rank;
using test::RankChild;
using test::sleep_for_ever;

std::optional<FlightEntry> pending(std::uint64_t seq, double enqueued_s) {
    return FlightEntry{.seq = seq, .enqueued_s = enqueued_s};
}

TEST(StuckClock, CountsWhileOneCollectiveIsPending) {
    StuckClock clock(1);
    EXPECT_EQ(clock.update(std::nullopt, 100), 0);
    EXPECT_EQ(clock.update(pending(1, 100.5), 101), 0.5);
    EXPECT_EQ(clock.update(pending(1, 100.5), 102), 1.5);
    EXPECT_EQ(clock.update(pending(2, 101), 103), 1) << "progress starts it anew";
    EXPECT_EQ(clock.update(std::nullopt, 104), 0);
    clock.update(pending(3, 105), 105);
    EXPECT_EQ(clock.update(pending(3, 105), 5000), 4) << "the process itself was stopped";
}

TEST(WatchdogSettings, FollowFromTheTimeOut) {
    const auto settings = WatchdogSettings::within(600);
    EXPECT_EQ(settings.warn_s, 60);
    EXPECT_EQ(settings.dump_s, 120);
    EXPECT_EQ(settings.init_s, 2400);
    EXPECT_FALSE(settings.is_patient());
    EXPECT_TRUE(WatchdogSettings::within(0).is_patient());
}

void begin_phase(Rank& rank, Phase phase) {
    *rank.recorder.phase_word() = packed(PhaseMark{phase, now_s()});
}

using Children = std::vector<std::unique_ptr<RankChild>>;

/// What `children` said, who all end for a peer, and of whom one names the error.
std::string output_of_all(const Children& children) {
    std::string output;
    for (const auto& child : children) {
        EXPECT_EQ(child->wait(20), 76);
        output += child->output();
    }
    EXPECT_EQ(output.find("error"), output.rfind("error")) << "one message only: " << output;
    return output;
}

enum class Then { sleep, wait };

struct WatchdogTest : InFolder {
    /// A rank in `phase` that is well and at nothing that is recorded, or waits in its second
    /// collective.
    RankChild finishes_one(
        int rank, int ranks, double timeout_s, Then then, std::optional<Phase> phase = {}) const {
        return {folder_, rank, [=, this] {
                    Rank self(folder_, rank, ranks, timeout_s);
                    self.finish_one();
                    if (phase) begin_phase(self, *phase);
                    if (then == Then::wait) self.wait_in_one();
                    sleep_for_ever();
                }};
    }
};

TEST_F(WatchdogTest, EndsARankThatWaitsAndNamesTheOneThatDoesNotCome) {
    const RankChild late = finishes_one(1, 2, 0, Then::sleep, Phase::data);
    ASSERT_TRUE(has_ring(folder_, 1));
    const RankChild waiting = finishes_one(0, 2, 0.5, Then::wait);
    EXPECT_EQ(waiting.wait(20), 76);
    EXPECT_THAT(waiting.output(),
                has("lockstep: error E660: rank 1 (",
                    "has not come to #2 barrier\n",
                    "rank 1 last finished #1 and is in data wait since"));
    EXPECT_EQ(read_verdict(folder_.path())->trouble, Trouble::slow_rank);
    EXPECT_THAT(content_of(folder_ / "rank-00000.threads"), has("sleeping"));
    EXPECT_EQ(read_rank_trace(ring_path(folder_.path(), 0)).exit_code, 76);
}

TEST_F(WatchdogTest, NamesAStoppedRankThatIsTheLowest) {
    const RankChild stopped = finishes_one(0, 3, 0, Then::sleep);
    ASSERT_TRUE(has_ring(folder_, 0));
    stopped.send(SIGSTOP);
    Children waiting;
    for (int n : {1, 2})
        waiting.push_back(std::make_unique<RankChild>(folder_, n, [&, n] {
            Rank rank(folder_, n, 3, 0.5);
            rank.finish_one();
            has_ring(folder_, 3 - n);
            rank.wait_in_one();
            sleep_for_ever();
        }));
    EXPECT_THAT(output_of_all(waiting), has("rank 0 (", "is stopped (state T)"));
}

TEST_F(WatchdogTest, EndsARankWhosePeerIsStoppedWhereNothingIsRecorded) {
    const RankChild stopped = finishes_one(1, 2, 0, Then::sleep);
    ASSERT_TRUE(has_ring(folder_, 1));
    const RankChild other = finishes_one(0, 2, 0.5, Then::sleep);
    EXPECT_EQ(other.wait(0.8), -1) << "all are well so far";
    stopped.send(SIGSTOP);
    EXPECT_EQ(other.wait(20), 76);
    EXPECT_THAT(other.output(), has("rank 1 (", "is stopped (state T)"));
}

TEST_F(WatchdogTest, EndsAtOnceWhenARankOfTheNodeIsGone) {
    const RankChild victim = finishes_one(1, 2, 0, Then::sleep);
    ASSERT_TRUE(has_ring(folder_, 1));
    const RankChild survivor = finishes_one(0, 2, 600, Then::wait);
    ASSERT_TRUE(has_ring(folder_, 0));
    ::usleep(500'000);  // it looks for its neighbours four times a second
    victim.send(SIGKILL);
    EXPECT_EQ(survivor.wait(20), 76);
    EXPECT_THAT(survivor.output(), has("is gone without a word"));
}

TEST_F(WatchdogTest, EndsARankWhoseListenerHangs) {
    const RankChild waiting(folder_, 0, [&] {
        FlightRecorder recorder(folder_.path(), 0, 1, {.entries = 64});
        const Watchdog watchdog(recorder, WatchdogSettings::within(0.3), [](const WatchReport& r) {
            if (r.stage == Stage::abort) sleep_for_ever();
        });
        recorder.mark_running();
        recorder.start(recorder.enqueue(recorder.add_channel("test"), call));
        sleep_for_ever();
    });
    EXPECT_EQ(waiting.wait(20), 76);
    EXPECT_THAT(waiting.output(), has("E660"));
}

TEST_F(WatchdogTest, GivesRanksThatSaveLongerButNotForEver) {
    const RankChild writing = finishes_one(1, 2, 0, Then::sleep, Phase::checkpoint);
    ASSERT_TRUE(has_ring(folder_, 1));
    const double begin = now_s();
    const RankChild waiting = finishes_one(0, 2, 0.3, Then::wait, Phase::checkpoint);
    EXPECT_EQ(waiting.wait(20), 76);
    EXPECT_GE(now_s() - begin, 1.2) << "four times as long";
    EXPECT_THAT(waiting.output(), has("rank 1 (", "writing a checkpoint"));
}

TEST_F(WatchdogTest, LeavesARankAloneThatNobodyWaitsFor) {
    const RankChild announced(folder_, 1, [&] {
        Rank rank(folder_, 1, 2, 0.1);
        rank.recorder.enqueue(rank.channel, call);
        sleep_for_ever();
    });
    EXPECT_EQ(announced.wait(0.5), -1) << announced.output();
}

TEST_F(WatchdogTest, GivesARankThatSetsItselfUpMoreTime) {
    const double begin = now_s();
    const RankChild waiting(folder_, 0, [&] {
        FlightRecorder recorder(folder_.path(), 0, 1, {.entries = 64});
        const Watchdog watchdog(recorder, WatchdogSettings::within(0.3), [](const WatchReport&) {});
        recorder.start(recorder.enqueue(recorder.add_channel("test"), call));
        sleep_for_ever();
    });
    EXPECT_EQ(waiting.wait(20), 76);
    EXPECT_GE(now_s() - begin, 1.2) << "four times as long";
}

TEST_F(WatchdogTest, EndsRanksWhoseSetUpComesToNothing) {
    const double begin = now_s();
    Children ranks;
    for (int n : {0, 1})
        ranks.push_back(std::make_unique<RankChild>(folder_, n, [&, n] {
            FlightRecorder recorder(folder_.path(), n, 2, {.entries = 64, .warn_s = 0.03});
            const Watchdog watchdog(
                recorder, WatchdogSettings::within(0.3), [](const WatchReport&) {});
            recorder.end(recorder.enqueue(recorder.add_channel("control"), call));
            sleep_for_ever();
        }));
    const std::string output = output_of_all(ranks);
    EXPECT_GE(now_s() - begin, 1.2) << "four times as long";
    EXPECT_THAT(output,
                has("error E660: no rank has come further in its set-up for 1.",
                    "rank 1 last finished #1 and is setting up since 1."));
}

/// A rank that computes, or is in another phase, for ever.
void compute_for_ever(
    const TempDir& folder, int rank, int ranks, double timeout_s, Phase phase = Phase::forward) {
    FlightRecorder recorder(folder.path(), rank, ranks, {.entries = 64, .warn_s = timeout_s / 10});
    const Watchdog watchdog(
        recorder, WatchdogSettings::within(timeout_s), [](const WatchReport&) {});
    const SignalGuard signals;
    mirror_signals_to(recorder.signal_word());
    recorder.end(recorder.enqueue(recorder.add_channel("test"), call));
    recorder.mark_running();
    *recorder.phase_word() = packed(PhaseMark{phase, now_s()});
    sleep_for_ever();
}

TEST_F(WatchdogTest, EndsRanksThatAllComputeForEver) {
    Children ranks;
    for (int n : {0, 1})
        ranks.push_back(std::make_unique<RankChild>(
            folder_, n, [&, n] { compute_for_ever(folder_, n, 2, 1); }));
    const std::string output = output_of_all(ranks);
    // Of the younger of the two, which may be some milliseconds short of the time-out.
    const std::string age = "(9[0-9][0-9]ms|1\\.[0-9]s)";
    EXPECT_THAT(output, ContainsRegex("error E660: no rank has finished a phase for " + age));
    EXPECT_THAT(output, ContainsRegex("rank 1 last finished #1 and is in forward since " + age));
    EXPECT_EQ(read_verdict(folder_.path())->trouble, Trouble::no_progress);
    EXPECT_THAT(content_of(folder_ / "rank-00000.threads"), has("thread"));
}

TEST_F(WatchdogTest, EndsARankThatCannotAnswerASecondRequestToStop) {
    const RankChild stuck(folder_, 0, [&] { compute_for_ever(folder_, 0, 1, 0); });
    ASSERT_TRUE(has_ring(folder_, 0));
    ASSERT_TRUE(test::eventually(
        [&] { return read_rank_trace(ring_path(folder_.path(), 0)).phase == Phase::forward; }));
    stuck.send(SIGTERM);
    EXPECT_EQ(stuck.wait(1.2), -1) << "a step may take that long";
    stuck.send(SIGTERM);
    EXPECT_EQ(stuck.wait(20), 76);
    EXPECT_THAT(stuck.output(), has(", pid ", "has not finished a phase for"));
}

// It ends after four times as long, or as soon as that without a sign of its save once it was asked
// to stop.
TEST_F(WatchdogTest, EndsARankWhoseSaveNeverEnds) {
    const double begin = now_s();
    const RankChild stuck(
        folder_, 0, [&] { compute_for_ever(folder_, 0, 1, 0.3, Phase::checkpoint); });
    EXPECT_EQ(stuck.wait(20), 76);
    EXPECT_GE(now_s() - begin, 1.2) << "four times as long";
    EXPECT_THAT(stuck.output(), has("has not finished a phase for"));
    EXPECT_THAT(stuck.output(), has("is writing a checkpoint since"));
    EXPECT_THAT(stuck.output(), has("check the file system of the run's folder"));

    const TempDir other;
    const RankChild asked(other, 0, [&] { compute_for_ever(other, 0, 1, 2, Phase::checkpoint); });
    ASSERT_TRUE(has_ring(other, 0));
    ASSERT_TRUE(test::eventually(
        [&] { return read_rank_trace(ring_path(other.path(), 0)).phase == Phase::checkpoint; }));
    asked.send(SIGTERM);
    const double asked_s = now_s();
    EXPECT_EQ(asked.wait(20), 76);
    EXPECT_LT(now_s() - asked_s, 7) << "not four times as long";
    EXPECT_THAT(asked.output(), has("check the file system of the run's folder"));
}

TEST_F(WatchdogTest, LeavesASaveAloneThatGivesSigns) {
    const RankChild writing(folder_, 0, [&] {
        Rank rank(folder_, 0, 1, 0.1);
        rank.recorder.mark_running();
        for (const double end = now_s() + 1; now_s() < end; ::usleep(10'000))
            begin_phase(rank, Phase::checkpoint);
    });
    EXPECT_EQ(writing.wait(20), 0) << writing.output();
}

TEST_F(WatchdogTest, LeavesPhasesAloneThatMayBeLong) {
    for (const Phase phase : {Phase::data, Phase::evaluate, Phase::other}) {
        const RankChild busy(folder_, 0, [&] {
            Rank rank(folder_, 0, 1, 0.1);
            begin_phase(rank, phase);
            sleep_for_ever();
        });
        EXPECT_EQ(busy.wait(0.4), -1) << phase_name(phase) << ": " << busy.output();
    }
}

TEST_F(WatchdogTest, LeavesAHealthyRankAlone) {
    const RankChild healthy(folder_, 0, [&] {
        Rank rank(folder_, 0, 1, 0.3);
        for (const double end = now_s() + 1; now_s() < end; ::usleep(100)) rank.finish_one();
    });
    EXPECT_EQ(healthy.wait(20), 0) << healthy.output();
    EXPECT_EQ(healthy.output(), "");
    EXPECT_FALSE(read_verdict(folder_.path()));
}

}  // namespace
}  // namespace lockstep
