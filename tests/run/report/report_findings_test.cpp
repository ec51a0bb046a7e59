// SPDX-License-Identifier: Apache-2.0
#include "made_up_run.hpp"

#include <algorithm>
#include <limits>
#include <optional>

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using test::made_up_cause;
using test::made_up_clues;
using test::made_up_figures;
using testing::HasSubstr;

// A run without anything to find, which each test spoils.
class Findings : public testing::Test {
  protected:
    std::optional<ReportFinding> found(std::string_view kind) {
        report_ = make_report(run_, clues_);
        const auto it = std::ranges::find(report_.findings, kind, &ReportFinding::kind);
        return it == report_.findings.end() ? std::nullopt : std::optional(*it);
    }
    /// Its title and its command, or "".
    std::string said(std::string_view kind) {
        const auto finding = found(kind);
        return finding ? finding->title + "\n" + finding->command : "";
    }
    /// Each rank spends `seconds` more of each step in `phase`.
    void add_to_all(Phase phase, double seconds) {
        for (RankFigures& rank : run_.ranks)
            for (StepBudget& step : rank.steps) step.phases[phase] += seconds;
    }
    RunTimes& times() { return clues_.status.times; }

    RunFigures run_ = made_up_figures(4, 40);
    ReportClues clues_ = made_up_clues(40);
    Report report_;
};

TEST_F(Findings, AreOneWhereAllIsWell) {
    EXPECT_THAT(said("all_well"), HasSubstr("nothing stands out: 100 % of a step"));
    EXPECT_EQ(report_.findings.size(), 1u);
}

TEST_F(Findings, BeginWithTheFailure) {
    clues_.cause = made_up_cause();
    clues_.next = "lockstep explain E213";
    add_to_all(Phase::data, 0.010);
    EXPECT_THAT(said("failure"), HasSubstr("rank 1 on n7: error E213: "));
    EXPECT_THAT(said("failure"), HasSubstr("\nlockstep explain E213"));
    EXPECT_EQ(report_.findings.front().kind, "failure");
    EXPECT_EQ(report_.findings.front().advice, "copy it again");
}

TEST_F(Findings, TellOfAFailureThatNoRankExplains) {
    clues_.status.condition = RunCondition::lost;
    EXPECT_THAT(said("failure"), HasSubstr("the run is lost, and no rank says why"));
}

TEST_F(Findings, NameAStragglerWithNodeAndCause) {
    for (StepBudget& step : run_.ranks[2].steps) step.phases[Phase::data] += 0.010;
    for (RankFigures& rank : run_.ranks)
        if (rank.facts.rank != 2)
            for (StepBudget& step : rank.steps) step.phases[Phase::wait] += 0.010;
    EXPECT_THAT(said("straggler"), HasSubstr("rank 2 on n1 holds the others up by"));
    EXPECT_THAT(said("straggler"), HasSubstr("its batches come late"));
    EXPECT_THAT(said("straggler"), HasSubstr("lockstep logs runs/a --rank 2"));
    EXPECT_EQ(said("waiting"), "") << "the straggler is why";
}

TEST_F(Findings, NameUnevenLeaves) {
    EXPECT_EQ(said("uneven_leaves"), "");
    run_ = made_up_figures(3, 40);
    EXPECT_THAT(
        said("uneven_leaves"),
        HasSubstr("V = 4 leaves on 3 ranks: 1 of them compute 2, the others 1; at most 67 % of"));
    EXPECT_THAT(said("uneven_leaves"), HasSubstr("lockstep train --np 4"));
}

TEST_F(Findings, NameWaitingThatNoStragglerExplains) {
    add_to_all(Phase::wait, 0.0004);
    EXPECT_EQ(said("waiting"), "");
    add_to_all(Phase::wait, 0.0006);
    EXPECT_THAT(said("waiting"), HasSubstr("ranks wait 9.1 % of a step for each other (1.00 ms)"));
}

TEST_F(Findings, NameSlowDataAndWhatBindsThem) {
    add_to_all(Phase::data, 0.001);
    EXPECT_EQ(said("data_bound"), "");
    add_to_all(Phase::data, 0.001);
    run_.reports.back().data = {.wait_s = 1, .io_threads = 3, .bound = "decode"};
    EXPECT_THAT(
        said("data_bound"),
        HasSubstr(
            "a step waits 17 % of its time for data (2.00 ms); what takes longest is decode"));
    EXPECT_THAT(said("data_bound"), HasSubstr("lockstep train --io-threads 6"));
}

TEST_F(Findings, NameCommunicationAndTimeBesideTraining) {
    add_to_all(Phase::comm, 0.002);
    add_to_all(Phase::other, 0.002);
    EXPECT_THAT(said("communication"), HasSubstr("a step waits 14 % of its time"));
    EXPECT_THAT(said("communication"), HasSubstr("lockstep bench comm --np 4"));
    EXPECT_THAT(said("other_time"), HasSubstr("14 % of a step is in no phase of training"));
    EXPECT_THAT(said("other_time"), HasSubstr("--log-every 0"));
}

TEST_F(Findings, NameSavingWithAnIntervalThatCostsLess) {
    times().saving = 3;
    EXPECT_EQ(said("saving"), "");
    times().saving = 7;
    run_.ranks[0].steps[20].phases[Phase::checkpoint] = 3.5;
    EXPECT_THAT(said("saving"), HasSubstr("saving took 7.0 % of the time (7.0s)"));
    EXPECT_THAT(said("saving"), HasSubstr("--checkpoint-every 100s"));
}

TEST_F(Findings, NameEvaluatingWithARarerInterval) {
    times().evaluating = 20;
    run_.evaluations = {{10, 1, {}}, {20, 2, {}}, {30, 3, {}}};
    EXPECT_THAT(said("evaluating"),
                HasSubstr("evaluating took 20 % of the time (20.0s for 3 evaluations)"));
    EXPECT_THAT(said("evaluating"), HasSubstr("--evaluate-every 40steps"));
}

TEST_F(Findings, NameSlowStartsAndFirstSteps) {
    times().starting = 40;
    run_.ranks[1].steps[0].phases[Phase::forward] = 6;
    EXPECT_THAT(said("slow_start"),
                HasSubstr("1 start(s) took 40.0s before their first step, 40 %"));
    EXPECT_THAT(said("first_step"), HasSubstr("the first kept step took 6.01 s, 60"));
}

TEST_F(Findings, NameRestartsAndWhatTheyCost) {
    clues_.status.starts.resize(3, clues_.status.starts.front());
    times().repeated = 10;
    times().down = 5;
    run_.ranks[0].steps[20].phases[Phase::checkpoint] = 1;
    EXPECT_THAT(said("restarts"), HasSubstr("3 starts: 15.0s between them"));
    EXPECT_THAT(said("restarts"), HasSubstr("--all-starts"));
    EXPECT_THAT(said("repeated_steps"), HasSubstr("10 % of the time went into steps"));
    EXPECT_THAT(said("repeated_steps"), HasSubstr("--checkpoint-every 10s")) << "sqrt(2 * 1 * 50)";
}

TEST_F(Findings, NameALossThatIsNotFinite) {
    run_.reports[3].report.loss = std::numeric_limits<double>::quiet_NaN();
    EXPECT_THAT(said("loss_not_finite"), HasSubstr("in 1 of 40 reports, first at step 4"));
    EXPECT_THAT(said("loss_not_finite"), HasSubstr("--lr 0.000333 --run runs/a-lr"));
    EXPECT_EQ(report_.findings.front().weight, FindingWeight::problem);
}

TEST_F(Findings, NameSkippedSteps) {
    run_.reports.back().skipped_steps = 7;
    EXPECT_THAT(said("skipped_steps"), HasSubstr("7 step(s) were skipped"));
    EXPECT_EQ(found("skipped_steps")->weight, FindingWeight::warning);
    run_.record.deciding["precision"] = "fp16";
    EXPECT_EQ(found("skipped_steps")->weight, FindingWeight::note);
}

TEST_F(Findings, NameATestLossThatRisesAgain) {
    run_.evaluations = {{10, 1, {{"test_loss", 1.0}}},
                        {20, 2, {{"test_loss", 0.5}}},
                        {30, 3, {{"test_loss", 0.54}}}};
    EXPECT_EQ(said("overfitting"), "");
    run_.evaluations.back().figures["test_loss"] = 0.6;
    EXPECT_THAT(said("overfitting"),
                HasSubstr("the test loss was 0.5 at step 20 and is 0.6 now: 20 % more"));
    EXPECT_THAT(said("overfitting"), HasSubstr("--keep-best loss --early-stop 5"));
}

TEST_F(Findings, NameDamagedSamplesAndReadsThatWereRepeated) {
    run_.reports[0].data.masked_samples = 2;
    run_.reports[1].data.masked_samples = 3;
    run_.reports[1].data.retries = 4;
    EXPECT_THAT(said("masked_samples"), HasSubstr("5 damaged sample(s)"));
    EXPECT_THAT(said("masked_samples"), HasSubstr("lockstep data verify D/train"));
    EXPECT_THAT(said("read_retries"), HasSubstr("4 read(s) of rank 0"));
}

TEST_F(Findings, TellWhereStepsAreNotKnown) {
    run_.ranks[3].steps.clear();
    run_.ranks[3].damage = "it holds no steps";
    EXPECT_THAT(said("damaged_steps"),
                HasSubstr("the steps of rank 3 are not known: it holds no steps"));
    for (RankFigures& rank : run_.ranks) rank = {.facts = rank.facts};
    EXPECT_THAT(said("no_steps"), HasSubstr("no rank recorded its steps"));
}

}  // namespace
}  // namespace lockstep
