// SPDX-License-Identifier: Apache-2.0
// Scenes in which all hosts wait in one collective and only their GPUs differ.
#include "lockstep/run/verdict.hpp"

#include "support/unit.hpp"

namespace lockstep {
namespace {

constexpr double present_s = 1'000'000;
constexpr std::uint64_t hanging = 813;

/// A rank whose host waits in #812 and has announced #813 and #814; two ranks on each node.
RankTrace waiting_rank(int rank, int ranks) {
    RankTrace trace{.rank = rank,
                    .ranks = ranks,
                    .host = "node" + std::to_string(rank / 2),
                    .pid = 4000 + rank,
                    .is_running = true,
                    .phase = Phase::comm,
                    .phase_since_s = present_s - 41,
                    .heartbeat_s = present_s - 0.1,
                    .channels = {"gradients"}};
    for (std::uint64_t seq = hanging - 1; seq <= hanging + 1; ++seq)
        trace.entries.push_back({.seq = seq,
                                 .call = {.op = FlightOp::reduce, .bytes = 1 << 20, .bucket = 3},
                                 .enqueued_s = present_s - 41,
                                 .started_s = present_s - 41});
    return trace;
}

/// Of `ranks`, all of which are inside #813 and know of nobody's part.
std::vector<RankTrace> all_inside(int ranks) {
    std::vector<RankTrace> traces;
    for (int rank = 0; rank < ranks; ++rank) {
        traces.push_back(waiting_rank(rank, ranks));
        traces.back().gpu = {.seq = hanging, .place = GpuPlace::inside};
    }
    return traces;
}

/// Parts of `missing` have not arrived at `trace`, those of others have.
void misses(RankTrace& trace, std::vector<int> missing) {
    trace.gpu.arrived =
        static_cast<std::uint32_t>(trace.ranks - 1) - static_cast<std::uint32_t>(missing.size());
    trace.gpu.missing = std::move(missing);
}

/// The same at each of `ranks`.
void miss(std::vector<RankTrace>& traces, const std::vector<int>& ranks, std::vector<int> missing) {
    for (const int rank : ranks) misses(traces[static_cast<std::size_t>(rank)], missing);
}

Verdict verdict_of(const std::vector<RankTrace>& traces) {
    return diagnose(traces, present_s, 10);
}

TEST(GpuStall, NamesTheRankWhosePartIsMissingEverywhere) {
    auto traces = all_inside(4);
    miss(traces, {0, 1, 3}, {2});
    misses(traces[2], {0, 1, 3});
    const Verdict verdict = verdict_of(traces);
    EXPECT_EQ(verdict.trouble, Trouble::stuck_gpu);
    EXPECT_THAT(verdict.culprits, ElementsAre(2));
    EXPECT_EQ(verdict.what,
              "the GPU of rank 2 (node1, pid 4002) is stuck in #813 reduce bucket 3 (1 MiB)");
    EXPECT_THAT(verdict.why, HasSubstr("at rank 0 the part of rank 2 has not arrived"));
    EXPECT_EQ(verdict.speaker, 0);
    EXPECT_EQ(error_of(verdict).code(), "E660");
}

// Its own word: a host that cannot look says nothing.
TEST(GpuStall, NamesItAlsoWhereItSaysNothingOrAllOthersHaveFinished) {
    auto traces = all_inside(3), finished = traces;
    miss(traces, {0, 2}, {1});
    traces[1].gpu = {};
    EXPECT_THAT(verdict_of(traces).culprits, ElementsAre(1));
    for (const std::size_t rank : {0u, 2u}) finished[rank].gpu.seq = hanging + 1;
    EXPECT_THAT(verdict_of(finished).culprits, ElementsAre(1));
}

TEST(GpuStall, NamesBothEndsOfAWayButNoCulprit) {
    auto two = all_inside(2);
    misses(two[0], {1});
    misses(two[1], {0});
    auto four = all_inside(4);
    misses(four[0], {3});
    misses(four[3], {0});
    for (const int rank : {1, 2}) four[static_cast<std::size_t>(rank)].gpu.seq = hanging + 1;
    const Verdict of_two = verdict_of(two), of_four = verdict_of(four);
    for (const Verdict& verdict : {of_two, of_four}) {
        EXPECT_EQ(verdict.trouble, Trouble::network_slow);
        EXPECT_THAT(verdict.culprits, IsEmpty());
    }
    EXPECT_THAT(of_two.what,
                HasSubstr("nothing arrives between rank 0 (node0, pid 4000) and rank 1 "
                          "(node0, pid 4001) in #813"));
    EXPECT_THAT(of_four.what, HasSubstr("between rank 0 (node0, pid 4000) and rank 3 (node1"));
    EXPECT_THAT(of_four.why, HasSubstr("ranks 1-2 finished theirs"));
}

// Of two ranks one may have nothing to receive: what the other misses tells of no culprit.
TEST(GpuStall, BelievesNoRankThatHasNobodysPart) {
    auto traces = all_inside(2);
    misses(traces[1], {0});
    const Verdict verdict = verdict_of(traces);
    EXPECT_THAT(verdict.culprits, IsEmpty());
    EXPECT_THAT(verdict.what, HasSubstr("nothing arrives between"));
}

// Nodes add up first: those who wait for a node say nothing of its ranks.
TEST(GpuStall, NamesOneOfANodeWhereOthersAreInTheNextRound) {
    auto traces = all_inside(6);
    for (const int rank : {3, 4, 5}) {
        misses(traces[static_cast<std::size_t>(rank)], {rank - 3});
        traces[static_cast<std::size_t>(rank)].gpu.round = 1;
    }
    miss(traces, {0, 2}, {1});
    EXPECT_THAT(verdict_of(traces).culprits, ElementsAre(1));
}

TEST(GpuStall, NamesRanksWhoseGpuHasNotCome) {
    auto traces = all_inside(4);
    miss(traces, {0, 2}, {1, 3});
    for (const int rank : {1, 3})
        traces[static_cast<std::size_t>(rank)].gpu.place = GpuPlace::before;
    const Verdict verdict = verdict_of(traces);
    EXPECT_THAT(verdict.culprits, ElementsAre(1, 3));
    EXPECT_EQ(verdict.what,
              "the GPUs of ranks 1,3 are still in other work before #813 reduce bucket 3 "
              "(1 MiB)");
}

TEST(GpuStall, NamesAGpuThatDoesNotEvenCopy) {
    auto traces = all_inside(3);
    miss(traces, {0, 1}, {2});
    traces[1].gpu.place = GpuPlace::silent;
    EXPECT_THAT(verdict_of(traces).culprits, ElementsAre(1));
    EXPECT_THAT(verdict_of(traces).what,
                HasSubstr("is without an answer, even to a copy on another stream"));
}

TEST(GpuStall, NamesNobodyWhereNothingIsKnownOfParts) {
    const Verdict verdict = verdict_of(all_inside(3));
    EXPECT_EQ(verdict.trouble, Trouble::network_slow);
    EXPECT_THAT(verdict.culprits, IsEmpty());
    EXPECT_THAT(verdict.what, HasSubstr("the GPUs of ranks 0-2 are in #813"));
    EXPECT_THAT(verdict.why, HasSubstr("whose part has not arrived is not known"));
}

TEST(GpuStall, NamesSeveralAtOnce) {
    auto traces = all_inside(5);
    miss(traces, {0, 1, 2}, {3, 4});
    const Verdict verdict = verdict_of(traces);
    EXPECT_THAT(verdict.culprits, ElementsAre(3, 4));
    EXPECT_THAT(verdict.why, HasSubstr("at rank 2 the parts of ranks 3-4 have not arrived"));
}

// Ranks of a node have each other's parts.
TEST(GpuStall, NamesTheNodesBetweenWhichNothingArrives) {
    auto two = all_inside(4);
    miss(two, {0, 1}, {2, 3});
    miss(two, {2, 3}, {0, 1});
    const Verdict between = verdict_of(two);
    EXPECT_THAT(between.culprits, IsEmpty());
    EXPECT_EQ(between.what,
              "nothing arrives between node0 and node1 in #813 reduce bucket 3 (1 MiB)");
    auto three = all_inside(6);
    miss(three, {0, 1}, {2, 3, 4, 5});
    miss(three, {2, 3, 4, 5}, {0, 1});
    EXPECT_THAT(verdict_of(three).what, HasSubstr("nothing arrives at or from node0 in #813"));
}

TEST(GpuStall, ComesAfterWhatHostsHaveDone) {
    auto traces = all_inside(3);
    miss(traces, {0, 1}, {2});
    traces[2].gpu = {};
    auto late = traces, stopped = traces;
    late[2].entries.clear();
    late[2].phase = Phase::data;
    EXPECT_EQ(verdict_of(late).trouble, Trouble::slow_rank);
    stopped[2].life = Life::stopped;
    EXPECT_EQ(verdict_of(stopped).trouble, Trouble::stopped);
    for (RankTrace& trace : traces) trace.gpu = {};
    EXPECT_THAT(verdict_of(traces).what, Not(HasSubstr("GPU")));
}

}  // namespace
}  // namespace lockstep
