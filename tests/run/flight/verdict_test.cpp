// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/verdict.hpp"

#include "support/unit.hpp"

#include <csignal>

#include <rapidcheck/gtest.h>

namespace lockstep {
namespace {

constexpr double now = 1'000'000;
constexpr FlightCall bucket_3{.op = FlightOp::reduce, .bytes = 25u << 20, .bucket = 3};

/// A rank that finished `finished` collectives and goes on in forward.
RankTrace rank_after(int rank, int ranks, std::uint64_t finished) {
    RankTrace trace{.rank = rank,
                    .ranks = ranks,
                    .host = "node0" + std::to_string(rank / 4),
                    .pid = 4000 + rank,
                    .is_running = true,
                    .phase = Phase::forward,
                    .phase_since_s = now - 41,
                    .heartbeat_s = now - 0.1,
                    .channels = {"gradients"}};
    for (std::uint64_t seq = finished > 20 ? finished - 20 : 1; seq <= finished; ++seq)
        trace.entries.push_back({.seq = seq,
                                 .call = bucket_3,
                                 .enqueued_s = now - 50,
                                 .started_s = now - 50,
                                 .ended_s = now - 45});
    return trace;
}

RankTrace& announces(RankTrace& trace, const FlightCall& call = bucket_3) {
    const std::uint64_t seq = trace.entries.empty() ? 1 : trace.entries.back().seq + 1;
    trace.entries.push_back({.seq = seq, .call = call, .enqueued_s = now - 41});
    return trace;
}

RankTrace& waits(RankTrace& trace, const FlightCall& call = bucket_3) {
    announces(trace, call).entries.back().started_s = now - 41;
    trace.phase = Phase::comm;
    return trace;
}

/// All ranks wait in #813, but `late`, which has finished #812.
std::vector<RankTrace> all_wait_for(int late, int ranks) {
    std::vector<RankTrace> traces;
    for (int rank = 0; rank < ranks; ++rank) {
        traces.push_back(rank_after(rank, ranks, 812));
        if (rank != late) waits(traces.back());
    }
    return traces;
}

void end_all(std::vector<RankTrace>& traces, int signal) {
    for (RankTrace& trace : traces) trace.life = Life::gone, trace.signal = signal;
}

Verdict verdict_on(const std::vector<RankTrace>& traces) {
    return diagnose(traces, now, 10);
}

/// The verdict, which is `trouble` with these culprits.
Verdict blamed(const std::vector<RankTrace>& traces,
               Trouble trouble,
               const std::vector<int>& culprits) {
    Verdict verdict = verdict_on(traces);
    EXPECT_EQ(verdict.trouble, trouble);
    EXPECT_EQ(verdict.culprits, culprits);
    return verdict;
}

TEST(Diagnose, IsContentWithRanksThatGoOnOrHaveFinished) {
    std::vector<RankTrace> traces = {rank_after(0, 2, 5), rank_after(1, 2, 5)}, ended = traces;
    for (RankTrace& trace : ended) {
        trace.end = FlightEnd::finished;
        trace.life = Life::gone;
    }
    EXPECT_EQ(verdict_on(ended).trouble, Trouble::none);
    EXPECT_EQ(verdict_on(traces).trouble, Trouble::none);
    waits(traces[0]).entries.back().started_s = now - 9;
    EXPECT_EQ(verdict_on(traces).trouble, Trouble::none) << "a short wait";
}

// What a host cannot see it does not call well either.
TEST(Diagnose, KnowsOfWhichRanksNothingWasHeard) {
    std::vector<RankTrace> traces = {rank_after(0, 2, 5), rank_after(1, 2, 5)};
    traces[1].life = Life::elsewhere;
    EXPECT_THAT(unheard_ranks(traces, now), ElementsAre());
    traces[1].heartbeat_s = now + 3600;
    EXPECT_THAT(unheard_ranks(traces, now), ElementsAre(1)) << "a sign of life of the future";
    traces[1].heartbeat_s = now - 8;
    EXPECT_EQ(verdict_on(traces).trouble, Trouble::none);
    EXPECT_THAT(unheard_ranks(traces, now), ElementsAre(1));
    EXPECT_EQ(diagnose(traces, now, 10, silence_after_end_s).trouble, Trouble::dead)
        << "of a start that is over";
    traces[1].end = FlightEnd::finished;
    EXPECT_THAT(unheard_ranks(traces, now), ElementsAre());
}

TEST(Diagnose, NamesTheRankThatAllOthersWaitFor) {
    std::vector<RankTrace> traces = all_wait_for(7, 8);
    traces[7].phase = Phase::data;
    const Verdict verdict = blamed(traces, Trouble::slow_rank, {7});
    EXPECT_EQ(verdict.speaker, 0);
    EXPECT_EQ(verdict.speaker_host, "node00");
    EXPECT_EQ(verdict.what,
              "rank 7 (node01, pid 4007) has not come to #813 reduce bucket 3 (25 MiB)");
    EXPECT_EQ(verdict.why,
              "all ranks finished #812; ranks 0-6 wait in #813 reduce bucket 3 (25 MiB) since "
              "41.0s; rank 7 last finished #812 and is in data wait since 41.0s");
    EXPECT_FALSE(verdict.pauses);
    EXPECT_EQ(error_of(verdict).code(), "E660");
    EXPECT_EQ(error_of(verdict).exit_code(), ExitCode::peer_lost);
}

TEST(Diagnose, HasPatienceWithCheckpointsAndEvaluations) {
    std::vector<RankTrace> traces = all_wait_for(1, 3);
    for (const Phase phase : {Phase::checkpoint, Phase::evaluate}) {
        traces[1].phase = phase;
        EXPECT_TRUE(verdict_on(traces).pauses) << phase_name(phase);
    }
}
TEST(Diagnose, NamesTheChannelWhereThereAreSeveral) {
    std::vector<RankTrace> traces = all_wait_for(1, 3);
    for (RankTrace& trace : traces) trace.channels = {"gradients", "metrics"};
    EXPECT_THAT(verdict_on(traces).why, HasSubstr("wait in gradients #813 reduce bucket 3"));
}

RC_GTEST_PROP(Diagnose, FindsTheOneInAnyWorld, ()) {
    const int ranks = *rc::gen::inRange(2, 40);
    const int victim = *rc::gen::inRange(0, ranks);
    std::vector<RankTrace> traces = all_wait_for(victim, ranks);
    // The others may be at several places, but never behind the victim.
    for (RankTrace& trace : traces)
        if (trace.rank != victim && *rc::gen::arbitrary<bool>()) {
            trace.entries.back().ended_s = now - 41;
            waits(trace);
        }
    const auto trouble = *rc::gen::element(
        Trouble::slow_rank, Trouble::dead, Trouble::stopped, Trouble::exited_early);
    RankTrace& culprit = traces[static_cast<std::size_t>(victim)];
    if (trouble == Trouble::dead) culprit.life = Life::gone;
    if (trouble == Trouble::stopped) culprit.life = Life::stopped;
    if (trouble == Trouble::exited_early) culprit.end = FlightEnd::finished;
    const Verdict verdict = verdict_on(traces);
    RC_ASSERT(verdict.trouble == trouble || ranks == 1);
    RC_ASSERT(verdict.culprits == std::vector<int>{victim});
    RC_ASSERT(verdict.speaker == (victim == 0 ? 1 : 0));
}

TEST(Diagnose, TellsDeathAtOnce) {
    std::vector<RankTrace> traces = {rank_after(0, 2, 5), rank_after(1, 2, 5)};
    traces[1].life = Life::gone;
    const Verdict verdict = blamed(traces, Trouble::dead, {1});
    EXPECT_EQ(verdict.what, "rank 1 (node00, pid 4001) is gone without a word");
}

TEST(Diagnose, TellsACrashFromAKill) {
    std::vector<RankTrace> traces = all_wait_for(2, 4);
    end_all(traces, SIGTERM);
    traces[2].signal = SIGSEGV;
    const Verdict verdict = blamed(traces, Trouble::dead, {2});
    EXPECT_EQ(verdict.what,
              "rank 2 (node00, pid 4002) crashed with signal 11 (Segmentation fault)");
    EXPECT_THAT(verdict.fix, HasSubstr("its last lines are its stack under mpirun"));
}

// The count of both versions; of version 2 only up to the group that sets the limit.
TEST(Diagnose, SaysWhenMemoryRanOut) {
    const TempDir root;
    std::vector<RankTrace> traces = {rank_after(0, 2, 5), rank_after(1, 2, 5)};
    traces[1].life = Life::gone;
    const auto blamed = [&](std::uint64_t before) {
        Verdict verdict = verdict_on(traces);
        blame_memory(verdict, traces, before, root.path());
        return verdict;
    };
    EXPECT_THAT(blamed(0).what, HasSubstr("is gone without a word")) << "nothing can be read";
    root.file("proc/self/cgroup", "4:memory:/job\n");
    root.file("sys/fs/cgroup/memory/job/memory.oom_control", "under_oom 0\noom_kill 3\n");
    root.file("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "440401920\n");
    EXPECT_EQ(blamed(2).what, "rank 1 (node00, pid 4001) is gone without a word: memory ran out");
    EXPECT_THAT(blamed(2).why,
                HasSubstr("ended 1 process(es) for it; the control group allows 420 MiB"));
    EXPECT_THAT(blamed(2).fix, HasSubstr("sbatch --mem"));
    root.file("sys/fs/cgroup/memory/job/memory.max_usage_in_bytes", "440401920\n");
    EXPECT_THAT(blamed(2).why, HasSubstr("allows 420 MiB and used 420 MiB at most"));
    EXPECT_THAT(blamed(3).why, HasSubstr("likely it was killed")) << "an old count";
    root.file("proc/self/cgroup", "0::/slurm/job\n");
    root.file("sys/fs/cgroup/slurm/job/memory.events", "oom 1\noom_kill 1\n");
    root.file("sys/fs/cgroup/slurm/job/memory.max", "440401920\n");
    root.file("sys/fs/cgroup/slurm/memory.events", "oom 9\noom_kill 9\n");
    EXPECT_THAT(blamed(0).why, HasSubstr("ended 1 process(es)"));
    EXPECT_THAT(blamed(1).what, Not(HasSubstr("memory ran out")));
    traces[1].signal = SIGSEGV;
    EXPECT_THAT(blamed(0).what, Not(HasSubstr("memory ran out"))) << "a crash";
    root.file("proc/self/cgroup", "0::/slurmstepd.scope/job_7/step_batch/user\n");
    root.file("sys/fs/cgroup/slurmstepd.scope/memory.events", "oom_kill 9\n");
    root.file("sys/fs/cgroup/slurmstepd.scope/job_7/memory.events", "oom_kill 2\n");
    root.file("sys/fs/cgroup/slurmstepd.scope/job_7/memory.max", "440401920\n");
    root.file("sys/fs/cgroup/slurmstepd.scope/job_7/memory.peak", "314572800\n");
    root.file("sys/fs/cgroup/slurmstepd.scope/job_7/step_batch/memory.max", "440401920\n");
    EXPECT_EQ(lack_of_memory(0, root.path()),
              "since the start the kernel has ended 2 process(es) for it; the control group allows "
              "420 MiB and used 300 MiB at most")
        << "those of the job's other steps, too";
}

TEST(Diagnose, NamesTheKilledRankAfterTheLauncherEndedTheOthers) {
    std::vector<RankTrace> traces = all_wait_for(2, 4);
    end_all(traces, SIGTERM);
    traces[2].signal = 0;
    EXPECT_EQ(blamed(traces, Trouble::dead, {2}).speaker, -1);
}

TEST(Diagnose, TakesTheHeartbeatThatEndedFirstWhereAllWereKilled) {
    std::vector<RankTrace> traces = all_wait_for(2, 4);
    for (RankTrace& trace : traces) trace.life = Life::gone;
    EXPECT_THAT(verdict_on(traces).culprits, ElementsAre(0, 1, 2, 3));
    traces[3].heartbeat_s = now - 20;
    EXPECT_THAT(verdict_on(traces).culprits, ElementsAre(3));
}

TEST(Diagnose, TakesSilenceFromAnotherHostForDeath) {
    std::vector<RankTrace> traces = all_wait_for(1, 2);
    traces[1].life = Life::elsewhere;
    EXPECT_EQ(verdict_on(traces).trouble, Trouble::slow_rank);
    traces[1].heartbeat_s = now - 95;
    EXPECT_THAT(blamed(traces, Trouble::dead, {1}).what,
                HasSubstr("has given no sign of life for 1m35s"));
}

// Its host's clock is wrong, and its log says by how much.
TEST(Diagnose, GoesByTheCorrectedClock) {
    for (const double ahead_s : {3600.0, -3600.0}) {
        std::vector<RankTrace> traces = all_wait_for(1, 2);
        put_on_clock(traces[1], -ahead_s);  // as it was written
        traces[1].life = Life::elsewhere;
        traces[1].heartbeat_s -= 8;
        const Verdict wrong = diagnose(traces, now, 10, silence_after_end_s);
        EXPECT_EQ(wrong.trouble == Trouble::dead, ahead_s < 0);
        put_on_clock(traces[1], ahead_s);
        const Verdict verdict = diagnose(traces, now, 10, silence_after_end_s);
        EXPECT_EQ(verdict.trouble, Trouble::dead);
        EXPECT_THAT(verdict.culprits, ElementsAre(1));
        EXPECT_THAT(verdict.what, HasSubstr("has given no sign of life for 8.1s"));
        EXPECT_EQ(traces[1].phase_since_s, now - 41);
        EXPECT_EQ(traces[1].entries.back().ended_s, now - 45);
        EXPECT_EQ(waits(traces[1]).entries.back().ended_s, 0);
    }
}

TEST(Diagnose, SaysOfTheDeadWhatTheyDidWhenTheyWereLastHeard) {
    std::vector<RankTrace> traces = all_wait_for(-1, 2);
    traces[1].life = Life::gone;
    traces[1].phase_since_s = traces[1].heartbeat_s;
    EXPECT_EQ(
        verdict_on({traces[1]}).why,
        "rank 1 last finished #812 and was in communication when it was last heard; likely "
        "it was killed (kill -9, or by the kernel because memory ran out: see dmesg), or a library "
        "ended it");
}

TEST(Diagnose, TellsWhoWasEndedFromOutside) {
    std::vector<RankTrace> traces = {rank_after(0, 2, 5), rank_after(1, 2, 5)};
    end_all(traces, SIGTERM);
    EXPECT_EQ(blamed(traces, Trouble::ended, {}).what, "all ranks were ended by signal 15");
}

TEST(Diagnose, NamesTheRankThatFailedNotThoseThatGaveUp) {
    std::vector<RankTrace> traces = all_wait_for(1, 3);
    for (RankTrace& trace : traces) {
        trace.end = FlightEnd::failed;
        trace.exit_code = trace.rank == 1 ? 74 : 76;
    }
    const Verdict verdict = blamed(traces, Trouble::failed, {1});
    EXPECT_EQ(verdict.what, "rank 1 (node00, pid 4001) ended with an error (exit code 74)");
}

TEST(Diagnose, StillNamesTheSlowRankAfterTheOthersGaveUp) {
    std::vector<RankTrace> traces = all_wait_for(1, 3);
    for (RankTrace& trace : traces) {
        trace.life = Life::gone;
        trace.heartbeat_s = now - 1;
        if (trace.rank == 1)
            trace.signal = 15;
        else
            trace.end = FlightEnd::failed, trace.exit_code = 76;
    }
    EXPECT_THAT(
        blamed(traces, Trouble::slow_rank, {1}).why,
        HasSubstr("rank 1 last finished #812 and was in forward for 40.0s when it was last heard"));
}

TEST(Diagnose, NamesARankThatDidNotJoin) {
    std::vector<RankTrace> traces = all_wait_for(-1, 4);
    traces.erase(traces.begin() + 2);
    EXPECT_EQ(blamed(traces, Trouble::did_not_join, {2}).what, "rank 2 did not join");
    for (RankTrace& trace : traces) trace.entries.back().started_s = now - 1;
    EXPECT_EQ(verdict_on(traces).trouble, Trouble::none) << "they have only just begun";
}

TEST(Diagnose, NamesARankThatIsStuckInInit) {
    std::vector<RankTrace> traces = {rank_after(0, 2, 0), rank_after(1, 2, 0)};
    waits(traces[0]);
    traces[1].is_running = false;
    traces[1].phase = Phase::other;
    EXPECT_THAT(blamed(traces, Trouble::stuck_in_init, {1}).why,
                HasSubstr("rank 1 has not finished any collective and is setting up since 41.0s"));
}

// Sums are pipelined: a rank that has done its part goes on to the next.
TEST(Diagnose, BlamesTheNetworkWhereAllAreInOneCollectiveOrFurtherOn) {
    EXPECT_THAT(blamed(all_wait_for(-1, 4), Trouble::network_slow, {}).what,
                HasSubstr("all ranks are in #813 reduce bucket 3 (25 MiB)"));
    std::vector<RankTrace> traces = all_wait_for(-1, 3);
    traces[2].entries.back().ended_s = now - 41;
    waits(traces[2]);
    const Verdict verdict = verdict_on(traces);
    EXPECT_EQ(verdict.trouble, Trouble::network_slow);
    EXPECT_THAT(verdict.what, StartsWith("ranks 0-1 are in #813 reduce bucket 3"));
    EXPECT_THAT(verdict.why, StartsWith("rank 2 is done with that and further on; "));
}

TEST(Diagnose, NamesRanksThatAllComputeAndDoNotEndAPhase) {
    std::vector<RankTrace> traces = {rank_after(0, 2, 5), rank_after(1, 2, 5)};
    for (RankTrace& trace : traces) trace.phase_since_s = now - 299;
    EXPECT_EQ(verdict_on(traces).trouble, Trouble::none) << "half of ten times 60 s is not over";
    traces[1].phase_since_s = now - 400;
    traces[0].phase_since_s = now - 301;
    const Verdict verdict = blamed(traces, Trouble::no_progress, {0, 1});
    EXPECT_EQ(verdict.what, "no rank has finished a phase for 5m01s");
    EXPECT_EQ(verdict.speaker, 0);
    std::vector<RankTrace> one_left = traces;
    one_left[0].life = Life::gone;
    one_left[0].end = FlightEnd::failed;
    one_left[0].exit_code = static_cast<int>(ExitCode::peer_lost);
    EXPECT_EQ(verdict_on(one_left).trouble, Trouble::no_progress) << "rank 0 gave up a moment ago";
    for (const Phase phase : {Phase::data, Phase::checkpoint, Phase::evaluate, Phase::other}) {
        traces[0].phase = phase;
        EXPECT_EQ(verdict_on(traces).trouble, Trouble::none) << phase_name(phase);
    }
    for (RankTrace& trace : traces) {
        trace.phase = Phase::checkpoint;
        trace.phase_since_s = now - 1201;
    }
    EXPECT_EQ(verdict_on(traces).trouble, Trouble::no_progress) << "half of four times as long";
    EXPECT_THAT(verdict_on(traces).fix, HasSubstr("the file system of the run's folder"));
    for (RankTrace& trace : traces) {
        trace.phase = Phase::backward;
        trace.phase_since_s = now - 301;
    }
    traces[0].phase = Phase::backward;
    traces[1].is_running = false;
    EXPECT_EQ(verdict_on(traces).trouble, Trouble::none) << "setting up";
    for (RankTrace& trace : traces) trace.signal = SIGTERM;
    EXPECT_EQ(verdict_on(traces).trouble, Trouble::no_progress) << "asked to stop";
    traces[1].life = Life::stopped;
    EXPECT_EQ(verdict_on(traces).trouble, Trouble::stopped);
}

TEST(Diagnose, NamesTheMinorityInAMismatch) {
    std::vector<RankTrace> traces = all_wait_for(1, 3);
    FlightCall other = bucket_3;
    other.bytes = 1u << 20;
    waits(traces[1], other);
    const Verdict verdict = blamed(traces, Trouble::size_mismatch, {1});
    EXPECT_EQ(verdict.what,
              "rank 1 (node00, pid 4001) calls reduce bucket 3 (1 MiB) of 262144 x float as #813, "
              "where ranks 0,2 call reduce bucket 3 (25 MiB) of 6553600 x float");
    EXPECT_EQ(error_of(verdict).code(), "E661");
    traces[1].entries.back().call = {.op = FlightOp::barrier};
    blamed(traces, Trouble::order_mismatch, {1});
}

TEST(Diagnose, TakesTheUsualCallForRightWhereTwoRanksDiffer) {
    FlightCall other = bucket_3;
    other.bytes = 1u << 20;
    for (const std::size_t victim : {0u, 1u}) {
        std::vector<RankTrace> traces = all_wait_for(-1, 2);
        traces[victim].entries.back().call = other;
        EXPECT_THAT(verdict_on(traces).culprits, ElementsAre(static_cast<int>(victim)));
    }
}

TEST(Diagnose, FindsAMismatchThatNobodyHangsIn) {
    std::vector<RankTrace> traces = {
        rank_after(0, 3, 30), rank_after(1, 3, 30), rank_after(2, 3, 30)};
    traces[2].entries[5].call.bytes = 8;
    blamed(traces, Trouble::size_mismatch, {2});
}

TEST(Diagnose, NamesARankThatAnnouncedAndThenStayedAwayAndLeavesDamagedRingsOut) {
    std::vector<RankTrace> traces = all_wait_for(2, 4), announced = traces;
    announces(announced[2]);
    blamed(announced, Trouble::slow_rank, {2});
    traces[1] = {.rank = 1, .damage = "it is cut short"};
    blamed(traces, Trouble::slow_rank, {2});
    EXPECT_EQ(diagnose({}, now, 0).trouble, Trouble::none);
}

TEST(VerdictFile, IsWrittenOnceAndReadBack) {
    const TempDir folder;
    EXPECT_FALSE(read_verdict(folder.path()));
    const Verdict verdict = verdict_on(all_wait_for(1, 3));
    EXPECT_TRUE(claim_verdict(folder.path(), verdict));
    EXPECT_FALSE(claim_verdict(folder.path(), Verdict{}));
    const auto found = read_verdict(folder.path());
    ASSERT_TRUE(found);
    EXPECT_EQ(found->trouble, verdict.trouble);
    EXPECT_EQ(found->culprits, verdict.culprits);
    EXPECT_EQ(found->what, verdict.what);
    EXPECT_EQ(found->why, verdict.why);
    EXPECT_TRUE(claim_verdict("/nowhere/at/all", Verdict{})) << "no reason for silence";
}

TEST(VerdictFile, IsRefusedWhenItMakesNoSense) {
    for (const char* content : {"", "{}", "[]", R"({"verdict": "unheard of"})"}) {
        const TempDir folder;
        folder.file("verdict.json", content);
        EXPECT_EQ(caught_code([&] { read_verdict(folder.path()); }), "E222") << content;
    }
}

// Two ranks of a node once both repeated it: the first had ended when the second looked.
TEST(VerdictFile, IsRepeatedOnceOnAHostThatDidNotHearIt) {
    const TempDir folder;
    EXPECT_FALSE(claim_unheard_verdict(folder.path(), 0)) << "there is none";
    folder.file("verdict.json", R"({"host": "another"})");
    EXPECT_FALSE(claim_unheard_verdict(folder.path(), 60)) << "it is young";
    EXPECT_TRUE(claim_unheard_verdict(folder.path(), 0));
    EXPECT_FALSE(claim_unheard_verdict(folder.path(), 0)) << "it was repeated";

    const TempDir own;
    EXPECT_TRUE(claim_verdict(own.path(), Verdict{}));
    EXPECT_FALSE(claim_unheard_verdict(own.path(), 0)) << "it was printed here";
}

}  // namespace
}  // namespace lockstep
