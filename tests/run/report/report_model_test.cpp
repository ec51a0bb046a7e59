// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/files.hpp"

#include "made_up_run.hpp"
#include "report/report_words.hpp"
#include "support/unit.hpp"

#include <cmath>
#include <limits>

namespace lockstep {
namespace {

using test::made_up_cause;
using test::made_up_clues;
using test::made_up_figures;
using test::made_up_report;

TEST(ReportOutcome, SaysHowTheRunEndedWithItsResults) {
    RunFigures run = made_up_figures(2, 20);
    run.evaluations = {{20, 1, {{"test_loss", 0.25}, {"test_accuracy", 0.9}}}};
    EXPECT_EQ(make_report(run, made_up_clues(20)).outcome,
              "complete: 20 steps in 1m40s; training loss 0.05, test loss 0.25, test accuracy "
              "0.9");
}

TEST(ReportOutcome, NamesRankNodeAndCauseOfAFailure) {
    ReportClues clues = made_up_clues(20);
    clues.status.condition = RunCondition::failed;
    clues.cause = made_up_cause();
    clues.status.step = 10;  // when it was saved
    clues.status.starts.back().to_step = 12;
    EXPECT_THAT(make_report(made_up_figures(4, 12), clues).outcome,
                HasSubstr("failed at step 12 of 20 after 1m40s: rank 1 on n7: error E213 ("));
    clues.cause->trouble = "rank dead";
    EXPECT_THAT(make_report(made_up_figures(4, 12), clues).outcome,
                HasSubstr("rank 1 on n7: rank dead ("));
    clues.status.incarnation = 2;
    EXPECT_THAT(make_report(made_up_figures(4, 12), clues).outcome,
                HasSubstr(": start 1: rank 1 on n7"));
}

TEST(ReportOutcome, RepeatsTheReasonWhereNoRankHasOne) {
    ReportClues clues = made_up_clues(20);
    clues.status.condition = RunCondition::checkpointed;
    clues.status.reason = "time limit";
    EXPECT_THAT(make_report(made_up_figures(2, 20), clues).outcome,
                HasSubstr("saved at step 20 of 20 after 1m40s, to be continued: time limit"));
}

TEST(ReportCharts, AreShortHoweverLongTheRun) {
    const RunFigures run = made_up_figures(1, 5000);
    const std::vector<ReportChart> charts = report_charts(run);
    const ReportCurve& loss = charts.front().curves.front();
    EXPECT_LE(loss.points.size(), ReportLimits::points);
    EXPECT_EQ(loss.points.back().step, 5000);
    EXPECT_DOUBLE_EQ(loss.points.front().most, 1);
    EXPECT_LT(loss.points.front().value, 1) << "the mean of several";
    EXPECT_DOUBLE_EQ(loss.best_high, 1);
    EXPECT_EQ(loss.high_step, 1);
    EXPECT_DOUBLE_EQ(loss.last, 1.0 / 5000);
}

TEST(ReportCharts, LeaveOutWhatIsNotFiniteAndRatesThatStay) {
    RunFigures run = made_up_figures(1, 3);
    run.reports[1].report.loss = std::numeric_limits<double>::quiet_NaN();
    const auto charts = report_charts(run);
    EXPECT_EQ(charts.front().curves.front().points.size(), 2u);
    for (const ReportChart& chart : charts) EXPECT_NE(chart.kind, ChartKind::learning_rate);
    run.reports[2].report.lr = 0.1;
    EXPECT_EQ(report_charts(run)[1].kind, ChartKind::learning_rate);
}

TEST(HeatMap, ShowsTheSlowRankWhenItWasSlow) {
    RunFigures run = made_up_figures(4, 100);
    for (StepBudget& step : run.ranks[2].steps)
        if (step.step > 50) step.phases[Phase::backward] += 0.010;
    const HeatMap heat = heat_map(run.ranks);
    ASSERT_EQ(heat.rows.size(), 4u);
    ASSERT_EQ(heat.first_step.size(), 100u);
    EXPECT_NEAR(heat.rows[2].ratio[49], 1, 1e-9);
    EXPECT_NEAR(heat.rows[2].ratio[50], 2, 1e-9);
    EXPECT_NEAR(heat.rows[2].mean, 1.5, 1e-9);
    EXPECT_NEAR(heat.rows[1].mean, 1, 1e-9);
}

TEST(HeatMap, IsSmallForManyRanksAndSteps) {
    RunFigures run = made_up_figures(200, 500);
    for (StepBudget& step : run.ranks[150].steps) step.phases[Phase::data] = 0.010;
    const HeatMap heat = heat_map(run.ranks);
    EXPECT_LE(heat.rows.size(), ReportLimits::rows);
    EXPECT_EQ(heat.first_step.size(), ReportLimits::columns);
    EXPECT_EQ(heat.first_step.front(), 1);
    EXPECT_EQ(heat.rows.back().last, 199);
    for (const HeatRow& row : heat.rows)
        EXPECT_NEAR(row.mean, row.first <= 150 && 150 <= row.last ? 2 : 1, 1e-9) << row.first;
}

TEST(HeatMap, DoesNotCountWaitingForOthersOrKnowWhatNobodyKept) {
    RunFigures run = made_up_figures(2, 10);
    for (StepBudget& step : run.ranks[0].steps) step.phases[Phase::wait] = 1;
    EXPECT_THAT(heat_map(run.ranks).rows[0].ratio, Each(testing::DoubleNear(1, 1e-9)));
    run.ranks[1].steps.resize(5);
    const HeatMap heat = heat_map(run.ranks);
    EXPECT_TRUE(std::isnan(heat.rows[1].ratio[9]));
    run.ranks[0].steps.clear();
    run.ranks[1].steps.clear();
    EXPECT_TRUE(heat_map(run.ranks).rows.empty());
}

// A damaged file may hold any number.
TEST(HeatMap, BearsStepsFarApart) {
    RunFigures run = made_up_figures(1, 2);
    run.ranks[0].steps[1].step = std::numeric_limits<std::int64_t>::max();
    const HeatMap heat = heat_map(run.ranks);
    EXPECT_EQ(heat.first_step.size(), ReportLimits::columns);
    EXPECT_TRUE(std::isfinite(heat.rows[0].ratio.back()));
}

TEST(Placement, IsReadFromTheLogWithoutColumnsThatSayNothing) {
    const TempDir folder;
    const auto log = folder.file("rank-00000.log",
                                 "2 nodes | 2 ranks x 2 threads\n"
                                 "rank  node   local  cores  threads  comm  numa  gpu  path  nic\n"
                                 "0     n-one  0      0-1*   2        -     0     -    -     -\n"
                                 "1     n2     0      0-1    2        -     0     -    -     -\n"
                                 "* bound by the launcher, and kept\n"
                                 "2026-01-31T12:00:00.000Z info  run a\n");
    const PlacementTable table = read_placement(log);
    EXPECT_THAT(table.rows,
                ElementsAre(ElementsAre("rank", "node", "local", "cores", "threads", "numa"),
                            ElementsAre("0", "n-one", "0", "0-1*", "2", "0"),
                            ElementsAre("1", "n2", "0", "0-1", "2", "0")));
    EXPECT_THAT(table.notes,
                ElementsAre("2 nodes | 2 ranks x 2 threads", "* bound by the launcher, and kept"));
    EXPECT_TRUE(read_placement(folder / "none").rows.empty());
    EXPECT_TRUE(
        read_placement(folder.file("log", "2026-01-31T12:00:00.000Z info  a\n")).rows.empty());
}

TEST(ReportJson, HasCurvesAgainstUpdatesAndSamplesAndPhasesThatSumToTheStep) {
    const Json json = report_json(made_up_report());
    const Json& loss = json.at("charts").at(0).at("curves").at(0);
    EXPECT_EQ(loss.at("points").at(9).at("step"), 10);
    EXPECT_EQ(loss.at("points").at(9).at("samples"), 240);
    EXPECT_EQ(json.at("facts").at("model"), "mlp");
    EXPECT_EQ(json.at("ranks").size(), 4u);
    EXPECT_TRUE(json.at("cause").is_null());
    EXPECT_NO_THROW(parse_json(json.dump(), "report"));
    for (const Json& rank : json.at("ranks")) {
        double sum = 0;
        for (const JsonMember& phase : rank.at("phases_s").items())
            sum += phase.value.get<double>();
        EXPECT_NEAR(sum, rank.at("wall_s").get<double>(), 1e-12);
        EXPECT_NEAR(sum, 0.010, 1e-9);
    }
}

}  // namespace
}  // namespace lockstep
