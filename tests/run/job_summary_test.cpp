// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/job_summary.hpp"

#include "support/unit.hpp"

#include <algorithm>

namespace lockstep {
namespace {

constexpr std::uint64_t gib = std::uint64_t{1} << 30;

StepBudget step_of(std::int64_t step, double backward_s, double wait_s) {
    StepBudget budget{.step = step, .ended_unix_s = static_cast<double>(step)};
    budget.phases[Phase::backward] = backward_s;
    budget.phases[Phase::wait] = wait_s;
    return budget;
}

/// Of 100 steps of a second each.
RankUse rank_of(int rank, const std::string& host, double backward_s) {
    StepStretches stretches;
    for (std::int64_t step = 1; step <= 100; ++step)
        stretches.add(step_of(step, backward_s, 1 - backward_s));
    return {.rank = rank,
            .host = host,
            .wall_s = 120,
            .cpu_s = 180,
            .cores = 2,
            .peak_bytes = (2 + static_cast<std::uint64_t>(rank)) * gib,
            .shared_bytes = gib,
            .limit_bytes = 8 * gib,
            .limit_of = "control group",
            .leaves = 1,
            .data_bound = "",
            .saves = 2,
            .steps = stretches.steps(),
            .stretches = stretches.all()};
}

TEST(StepStretches, HoldEveryStepInAFewAlikeOnAllRanks) {
    StepStretches stretches;
    for (std::int64_t step = 41; step <= 1040; ++step) {
        stretches.add(step_of(step, 1, 0));
        ASSERT_LE(stretches.all().size(), StepStretches::most);
    }
    stretches.add(step_of(1040, 5, 0));
    EXPECT_EQ(stretches.steps(), 1000);
    double sum = 0;
    for (const StepBudget& stretch : stretches.all()) sum += stretch.wall_s();
    EXPECT_EQ(sum, 1005);
    EXPECT_EQ(stretches.all().front().wall_s(), 32);
    EXPECT_EQ(stretches.all()[30].wall_s(), 32);
    EXPECT_EQ(stretches.all().back().step, 32);
    EXPECT_EQ(stretches.all().back().ended_unix_s, 1040);
}

TEST(RankUse, IsReadAsItWasSent) {
    RankUse sent = rank_of(3, "n2", 0.75);
    sent.links = {{.from = 1, .messages = 2, .bytes = 3, .seconds = 4}};
    const RankUse read = record_from_json<RankUse>(json_of_record(sent), "rank 3");
    EXPECT_EQ(json_of_record(read).dump(), json_of_record(sent).dump());
    EXPECT_EQ(read.stretches.size(), sent.stretches.size());
    EXPECT_EQ(read.stretches.back().wall_s(), sent.stretches.back().wall_s());
}

TEST(JobSummary, AddsNodesUp) {
    const JobSummary job =
        summary_of(std::vector{rank_of(0, "n1", 1), rank_of(1, "n1", 1), rank_of(2, "n2", 1)});
    EXPECT_EQ(summary_text(job),
              "cpu           75 % of 6 core(s) for 2m00s (3 ranks on 2 nodes)\n"
              "memory        4 GiB at most (rank 2), 3 GiB on n1 of 8 GiB (control group)\n"
              "efficiency    100 % of the ranks' time in steps (1m40s) is computing\n"
              "time          backward 100 %\n");
    const JobSummary read = record_from_json<JobSummary>(json_of_record(job), "log");
    EXPECT_EQ(summary_text(read), summary_text(job));
    EXPECT_EQ(summary_text(summary_of(std::vector{RankUse{.rank = 0, .host = "n1"}})), "")
        << "without steps";
}

TEST(JobSummary, TellsTheMostOfEachKindOfMemoryAndOfANodesState) {
    std::vector ranks{rank_of(0, "n1", 1), rank_of(1, "n1", 1), rank_of(2, "n2", 1)};
    ranks[0].model = {4 * gib, 8 * gib, gib};
    ranks[1].model = {4 * gib, 8 * gib, gib};
    ranks[2].model = {4 * gib, 9 * gib, gib + gib / 2};
    const JobSummary job = summary_of(ranks);
    EXPECT_EQ(job.node_state_bytes, 2 * gib);
    EXPECT_THAT(summary_text(job),
                HasSubstr("model         4 GiB for parameters, 9 GiB for gradients, 1.5 GiB for "
                          "optimizer state at most; 2 GiB of state on a node\n"));
}

TEST(JobSummary, NamesAStraggler) {
    const JobSummary job =
        summary_of(std::vector{rank_of(0, "n1", 0.5), rank_of(1, "n1", 0.5), rank_of(2, "n2", 1)});
    EXPECT_THAT(job.why,
                HasSubstr("rank 2 on n2 holds the others up by 500ms a step (50 %): it "
                          "computes slower"));
    EXPECT_THAT(job.advice, HasSubstr("n2"));
    EXPECT_NEAR(job.efficiency, 2.0 / 3, 1e-9);
    EXPECT_EQ(std::ranges::count(summary_text(job), '\n'), 6);
}

/// A rank that spends `share` of its time on `phase`.
RankUse busy_with(Phase phase, double share) {
    RankUse rank = rank_of(0, "n1", 1 - share);
    for (StepBudget& stretch : rank.stretches)
        std::swap(stretch.phases[phase], stretch.phases[Phase::wait]);
    return rank;
}

JobSummary alone(Phase phase, double share) {
    return summary_of(std::vector{busy_with(phase, share)});
}

TEST(JobSummary, SaysWhatTheTimeIsLostTo) {
    EXPECT_THAT(alone(Phase::data, 0.3).why, HasSubstr("batches come too slowly: 30 %"));
    EXPECT_THAT(alone(Phase::checkpoint, 0.2).why, HasSubstr("saving takes long: 20 %"));
    EXPECT_EQ(alone(Phase::wait, 0.2).why, "ranks wait for each other in turns: 20 % of the time");
    EXPECT_EQ(alone(Phase::wait, 0.2).advice, "lockstep doctor looks for shared cores");
    EXPECT_EQ(alone(Phase::data, 0.05).why, "");
    EXPECT_THAT(summary_text(alone(Phase::data, 0.05)), Not(HasSubstr("try ")));
}

TEST(JobSummary, AdvisesNothingThatIsSoAlready) {
    RankUse rank = rank_of(0, "n1", 0.26);
    for (StepBudget& stretch : rank.stretches) {
        double& rest_s = stretch.phases[Phase::wait];
        stretch.phases[Phase::evaluate] = 0.54 / 0.74 * rest_s;
        stretch.phases[Phase::checkpoint] = 0.20 / 0.74 * rest_s;
        rest_s = 0;
    }
    EXPECT_THAT(summary_of(std::vector{rank}).why, HasSubstr("evaluation takes long: 54 %"));
    std::vector saved_once{busy_with(Phase::checkpoint, 0.2)};
    EXPECT_THAT(summary_of(saved_once).why, HasSubstr("saving takes long: 20 %"));
    saved_once[0].saves = 1;
    EXPECT_EQ(summary_of(saved_once).why, "") << "it can be no rarer";
    std::vector resident{busy_with(Phase::data, 0.3)};
    EXPECT_THAT(summary_of(resident).advice, HasSubstr("--data-mode resident"));
    resident[0].has_resident_data = true;
    EXPECT_THAT(summary_of(resident).why, HasSubstr("though the data are in memory: 30 %"));
    EXPECT_THAT(summary_of(resident).advice, Not(HasSubstr("--data-mode")));
}

// 11 % of a step of a millisecond and a half is what any system takes now and then.
TEST(JobSummary, BlamesNobodyForAFractionOfAMillisecondOrInARunOfLessThanSomeSeconds) {
    std::vector ranks{rank_of(0, "n1", 1), rank_of(1, "n1", 0.89)};
    EXPECT_THAT(summary_of(ranks).why, HasSubstr("rank 0 on n1 holds the others up by 110ms"));
    for (RankUse& rank : ranks) rank.steps = 66'000;
    EXPECT_EQ(summary_of(ranks).why, "");
    RankUse brief = rank_of(0, "n1", 0.7);
    EXPECT_NE(summary_of(std::vector{brief}).why, "");
    for (StepBudget& stretch : brief.stretches)
        for (double& seconds : stretch.phases) seconds *= 0.01;
    EXPECT_EQ(summary_of(std::vector{brief}).why, "");
}

// Of two nodes whose messages take equally long both ways none can be named.
TEST(JobSummary, SaysHowFastMessagesAreWhereRanksWait) {
    std::vector ranks{rank_of(0, "n1", 0.5), rank_of(1, "n2", 0.5)};
    for (RankUse& rank : ranks)
        rank.links = {{.from = 1 - rank.rank, .messages = 20, .bytes = 120'000'000, .seconds = 10}};
    EXPECT_THAT(summary_of(ranks).why,
                HasSubstr("network: 50 % of the time; from node to node a rank gets 12 MB/s"));
}

TEST(JobSummary, NamesANodeWhoseLinkIsSlow) {
    std::vector<RankUse> ranks;
    for (int rank = 0; rank < 4; ++rank)
        ranks.push_back(rank_of(rank, "n" + std::to_string(rank), 0.5));
    for (RankUse& rank : ranks)
        for (const int from : {rank.rank ^ 1, rank.rank ^ 2})
            rank.links.push_back({.from = from,
                                  .messages = 20,
                                  .bytes = 1'000'000,
                                  .seconds = rank.rank == 3 || from == 3 ? 1.0 : 0.1});
    EXPECT_THAT(summary_of(ranks).why,
                HasSubstr("rank 3 on n3 holds the others up by 450ms a step (45 %): its node's "
                          "link is slow: 1.0 MB/s, others' 10 MB/s"));
}

TEST(JobSummary, SaysThatRanksSeemToComputeAndDoNot) {
    RankUse rank = rank_of(0, "n1", 1);
    rank.cores = 1;
    rank.cpu_s = 12;
    const JobSummary paused = summary_of(std::vector{rank});
    EXPECT_THAT(paused.why, HasSubstr("used a core for only 12 % of the time in which they"));
    EXPECT_THAT(paused.advice, HasSubstr("lockstep doctor"));
    rank.cpu_s = 70;
    EXPECT_EQ(summary_of(std::vector{rank}).why, "");
    rank.cpu_s = 12;
    rank.is_on_gpu = true;
    EXPECT_EQ(summary_of(std::vector{rank}).why, "");
}

TEST(JobSummary, SaysThatCoresAreIdle) {
    RankUse rank = rank_of(0, "n1", 1);
    rank.cores = 16;
    rank.leaves = 8;
    EXPECT_EQ(summary_of(std::vector{rank}).why, "some cores are idle");
    EXPECT_EQ(summary_of(std::vector{rank}).advice,
              "more ranks: --np 8; the bits stay the same, for V is 8");
    rank.threads = 4;
    EXPECT_THAT(summary_of(std::vector{rank}).advice, HasSubstr("--np 4;"));
    rank.is_on_gpu = true;
    EXPECT_EQ(summary_of(std::vector{rank}).why, "");
}

TEST(JobSummary, AdvisesNoRanksThatCannotBe) {
    RankUse rank = rank_of(0, "n1", 1);
    rank.cores = 16;
    EXPECT_THAT(summary_of(std::vector{rank}).advice, HasSubstr("of a new run: V is 1 here"));
    rank.leaves = 8;
    rank.cores = 1.5;
    rank.cpu_s = 60;
    EXPECT_EQ(summary_of(std::vector{rank}).why, "") << "there is no core for another rank";
}

TEST(JobSummary, SaysThatOthersUseTheCores) {
    std::vector ranks{rank_of(0, "n1", 0.5), rank_of(1, "n1", 0.5), rank_of(2, "n2", 1)};
    ranks[2].coreless_s = 60;
    EXPECT_EQ(summary_of(ranks).why,
              "other processes used the cores of rank 2 on n2: it was ready for 50 % of the time, "
              "but had no core");
    EXPECT_THAT(summary_of(ranks).advice, HasSubstr("'top' on n2"));
    ranks[2].coreless_s = 3;
    EXPECT_THAT(summary_of(ranks).why, HasSubstr("rank 2 on n2 holds the others up"));
    RankUse rank = rank_of(0, "n1", 0.7);
    rank.coreless_s = 60;
    EXPECT_THAT(summary_of(std::vector{rank}).why, HasSubstr("other processes used the cores"));
    rank = busy_with(Phase::data, 0.3);
    rank.coreless_s = 60;
    EXPECT_THAT(summary_of(std::vector{rank}).why, HasSubstr("batches come too slowly"));
}

}  // namespace
}  // namespace lockstep
