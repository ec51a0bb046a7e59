// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/requeue_rule.hpp"

#include "support/unit.hpp"

namespace lockstep {
namespace {

const RequeueLimits limits{.restarts = 20, .idle_starts = 3};

RequeueVerdict judge(const JobEnd& end) {
    return judge_job_end(end, limits);
}

/// "again 75" where the job is to be started again, else "ends 75".
std::string word_on(const JobEnd& end) {
    const RequeueVerdict verdict = judge(end);
    return (verdict.requeues ? "again " : "ends ") + std::to_string(verdict.exit_code);
}

TEST(RequeueRule, EndsWithACompleteRunWhateverTheLauncherSays) {
    for (const int exit_code : {0, 1, 75, 137, 205})
        EXPECT_EQ(word_on({.launcher_exit = exit_code, .run = RunEnd::complete}), "ends 0");
}

TEST(RequeueRule, RequeuesASavedRun) {
    EXPECT_EQ(word_on({.launcher_exit = 75, .run = RunEnd::saved}), "again 75");
}

TEST(RequeueRule, DoesNotTakeZeroFromMpirunForSuccess) {
    const JobEnd end{.launcher_exit = 0, .run = RunEnd::running};
    EXPECT_EQ(word_on(end), "again 76");
    EXPECT_THAT(judge(end).reason, HasSubstr("gone, but not done (the launcher says 0)"));
}

TEST(RequeueRule, RequeuesAfterTheLossOfARankOrNode) {
    for (const int exit_code : {1, 76, 137, 139, 143, 205})
        EXPECT_TRUE(judge({.launcher_exit = exit_code, .run = RunEnd::running}).requeues)
            << exit_code;
    EXPECT_TRUE(judge({.launcher_exit = 76, .run = RunEnd::failed, .failure_exit = 76}).requeues);
}

TEST(RequeueRule, NeverRequeuesWhatWouldFailAgain) {
    for (const int exit_code : {64, 65, 66, 69, 70, 73, 74, 77, 78, 130}) {
        EXPECT_EQ(word_on({.launcher_exit = exit_code, .run = RunEnd::running}),
                  "ends " + std::to_string(exit_code));
        EXPECT_FALSE(
            judge({.launcher_exit = 1, .run = RunEnd::failed, .failure_exit = exit_code}).requeues);
    }
    EXPECT_EQ(judge({.launcher_exit = 1, .run = RunEnd::interrupted}).exit_code, 130);
}

// A run that another job holds is free some time.
TEST(RequeueRule, DoesNotSayThatWhatIsInUseWouldFailAgain) {
    const auto said = [](int exit_code) {
        return judge({.launcher_exit = 1, .run = RunEnd::failed, .failure_exit = exit_code}).reason;
    };
    EXPECT_THAT(said(78), HasSubstr("would again"));
    EXPECT_THAT(said(69), HasSubstr("submit the job again when the cause has ended"));
}

TEST(RequeueRule, StartsNoJobThatGetsNowhere) {
    const auto code = [](std::int64_t restarts, std::int64_t idle) {
        const auto error = caught([&] { check_start(restarts, idle, limits); });
        return error ? error->code() + " " + std::to_string(static_cast<int>(error->exit_code()))
                     : "";
    };
    EXPECT_EQ(code(2, 2), "");
    EXPECT_EQ(code(20, 0), "");
    EXPECT_EQ(code(3, 3), "E541 93");
    EXPECT_EQ(code(21, 0), "E541 93");
    // Submitted by hand, perhaps after a repair.
    EXPECT_EQ(code(0, 3), "");
}

TEST(RequeueRule, NeverRequeuesARunThatWasRefused) {
    for (const int exit_code : {1, 64, 66, 78, 127, 130})
        EXPECT_EQ(word_on({.launcher_exit = exit_code}), "ends " + std::to_string(exit_code));
}

TEST(RequeueRule, RequeuesAFewTimesWhereRanksWereLostBeforeTheRunBegan) {
    for (const int exit_code : {0, 76, 137, 139, 143}) {
        EXPECT_EQ(word_on({.launcher_exit = exit_code}), "again 76") << exit_code;
        EXPECT_TRUE(judge({.launcher_exit = exit_code, .restarts = 1}).requeues);
        const JobEnd third{.launcher_exit = exit_code, .restarts = 2};
        EXPECT_EQ(word_on(third), "ends 93");
        EXPECT_THAT(judge(third).reason, HasSubstr("3 starts in a row"));
    }
}

const RankEnd other_settings{.who = "rank 1 on node2", .exit = 78, .error = "E306: other settings"};
const RankEnd lost_peer{.who = "rank 0 on node1", .exit = 76, .error = "E660: rank 1 is gone"};

// srun kills the other ranks of one that fails, and returns their 143.
TEST(RequeueRule, BelievesTheRankThatFailedRatherThanItsLauncher) {
    for (const RunEnd run : {RunEnd::unknown, RunEnd::not_begun, RunEnd::running, RunEnd::failed}) {
        const JobEnd end{.launcher_exit = 143,
                         .run = run,
                         .failure_exit = 76,
                         .rank_ends = {lost_peer, other_settings}};
        EXPECT_EQ(word_on(end), "ends 78");
        EXPECT_THAT(judge(end).reason, HasSubstr("E306: other settings (rank 1 on node2)"));
        EXPECT_TRUE(
            judge({.launcher_exit = 64, .run = run, .failure_exit = 76, .rank_ends = {lost_peer}})
                .requeues);
    }
    EXPECT_TRUE(judge({.launcher_exit = 143, .run = RunEnd::saved, .rank_ends = {other_settings}})
                    .requeues);
}

TEST(RequeueRule, CountsCheckpointsWhereEarlierStartsBeganTheRun) {
    JobEnd end{.launcher_exit = 143, .run = RunEnd::not_begun, .restarts = 5, .idle_starts = 2};
    EXPECT_TRUE(judge(end).requeues);
    EXPECT_THAT(judge(end).reason, HasSubstr("before the run began"));
    end.idle_starts = 3;
    EXPECT_EQ(judge(end).exit_code, 93);
    end.launcher_exit = 2;
    EXPECT_EQ(judge(end).exit_code, 2);
}

TEST(RequeueRule, GivesUpWithoutProgressAndAfterManyStarts) {
    JobEnd end{.launcher_exit = 75, .run = RunEnd::saved};
    end.idle_starts = 2;
    EXPECT_TRUE(judge(end).requeues);
    end.idle_starts = 3;
    EXPECT_EQ(word_on(end), "ends 93");
    EXPECT_THAT(judge(end).reason, HasSubstr("3 starts in a row brought no new checkpoint"));
    end = {.launcher_exit = 75, .run = RunEnd::saved, .restarts = 20};
    EXPECT_EQ(judge(end).exit_code, 93);
    EXPECT_THAT(judge(end).reason, HasSubstr("21 times"));
}

TEST(RequeueRule, LeavesAJobAloneThatSlurmEnds) {
    const JobEnd end{.launcher_exit = 75, .run = RunEnd::saved, .job_state = "COMPLETING"};
    EXPECT_EQ(word_on(end), "ends 75");
    EXPECT_THAT(judge(end).reason, HasSubstr("COMPLETING"));
}

// Its script lives on where SLURM cannot see it, and would requeue the start that took its place.
TEST(RequeueRule, LeavesALaterStartAlone) {
    for (const RunEnd run : {RunEnd::running, RunEnd::saved, RunEnd::complete, RunEnd::unknown}) {
        const JobEnd end{.launcher_exit = 76, .run = run, .is_newest_start = false};
        EXPECT_EQ(word_on(end), "ends 76");
        EXPECT_THAT(judge(end).reason, HasSubstr("a later start"));
    }
}

SlurmJob job_of(const std::map<std::string, std::string>& variables) {
    return read_slurm_job(Environment(variables));
}

TEST(SlurmJob, IsNamedAsScontrolKnowsIt) {
    const auto job = job_of({{"SLURM_JOB_ID", "12"},
                             {"SLURM_RESTART_COUNT", "2"},
                             {"SLURM_JOB_NODELIST", "node[1-2]"}});
    EXPECT_EQ(job.id, "12");
    EXPECT_EQ(job.restarts, 2);
    EXPECT_EQ(job.node_list, "node[1-2]");
    EXPECT_EQ(
        job_of({{"SLURM_JOB_ID", "14"}, {"SLURM_ARRAY_JOB_ID", "12"}, {"SLURM_ARRAY_TASK_ID", "3"}})
            .id,
        "12_3");
}

TEST(SlurmJob, RefusesWhatIsNoJob) {
    EXPECT_EQ(caught_code([] { job_of({}); }), "E520");
    EXPECT_EQ(caught_code([] { job_of({{"SLURM_JOB_ID", "12; rm -rf ~"}}); }), "E113");
    EXPECT_EQ(caught_code([] {
                  job_of({{"SLURM_JOB_ID", "12"},
                          {"SLURM_ARRAY_JOB_ID", "$(id)"},
                          {"SLURM_ARRAY_TASK_ID", "1"}});
              }),
              "E113");
}

}  // namespace
}  // namespace lockstep
