// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/comparison.hpp"

#include "support/unit.hpp"

#include <cmath>

#include <rapidcheck/gtest.h>

namespace lockstep {
namespace {

using testing::Field;

RunRecord record_of(const std::string& config,
                    const std::string& deciding,
                    const std::string& processor = "p") {
    RunRecord record;
    record.config = parse_json(config, "config");
    record.deciding = parse_json(deciding, "deciding");
    record.contract = {{"processor", processor}, {"canary", "of " + processor}, {"threads", 1}};
    record.versions = {{"lockstep", "1"}};
    return record;
}

RunFigures run_with_steps(std::vector<double> seconds, int ranks = 1) {
    RunFigures run;
    for (int rank = 0; rank < ranks; ++rank) {
        run.ranks.emplace_back();
        std::int64_t step = 0;
        for (const double each : seconds) {
            StepBudget budget{.step = ++step};
            budget.phases[Phase::comm] = rank * each;
            budget.phases[Phase::other] = (ranks - rank) * each;
            run.ranks.back().steps.push_back(budget);
        }
    }
    return run;
}

TEST(SettingsThatDiffer, AreDecidingOnesFirstWithTheirOrigins) {
    const RunRecord a = record_of(
        R"({"batch":{"value":"64","origin":"command line"},"np":{"value":"1","origin":"command line"},
            "run":{"value":"a","origin":"command line"}})",
        R"({"batch":64,"seed":1})");
    const RunRecord b = record_of(
        R"({"batch":{"value":"128","origin":"t.toml:3:1"},"io-threads":{"value":"2","origin":"x"},
            "np":{"value":"1","origin":"command line"},"run":{"value":"b","origin":"command line"}})",
        R"({"batch":128,"seed":1})",
        "q");
    const auto found = settings_that_differ(a, b);
    EXPECT_THAT(found,
                ElementsAre(Field(&SettingDifference::name, "batch"),
                            Field(&SettingDifference::name, "processor"),
                            Field(&SettingDifference::name, "io-threads")));
    EXPECT_EQ(found[0].kind, SettingKind::deciding);
    EXPECT_EQ(found[0].first, "64");
    EXPECT_EQ(found[0].second_origin, "t.toml:3:1");
    EXPECT_EQ(found[1].kind, SettingKind::contract);
    EXPECT_EQ(found[2].kind, SettingKind::free);
    EXPECT_EQ(found[2].first, "");
    EXPECT_TRUE(settings_that_differ(a, a).empty());
    EXPECT_THAT(settings_that_differ(a, record_of("{}", R"({"batch":64,"seed":1})", "q")),
                Contains(Field(&SettingDifference::name, "canary")))
        << "the same settings should have the same";
}

TEST(Scatter, IsThatOfStretchesWhichHangTogether) {
    std::vector<double> steady, drifting;
    for (int i = 0; i < 100; ++i) {
        steady.push_back(i % 2 == 0 ? 1 : 3);
        drifting.push_back(i < 50 ? 1 : 3);
    }
    EXPECT_EQ(scatter_of(steady).mean, 2);
    EXPECT_NEAR(scatter_of(steady).error, 0, 1e-9);
    EXPECT_NEAR(scatter_of(drifting).error, 1 / std::sqrt(9.0), 1e-9);
    EXPECT_EQ(scatter_of({}).count, 0);
    EXPECT_EQ(scatter_of(std::vector<double>{1, 2}).error, 0);
}

RC_GTEST_PROP(Scatter, DoesNotDependOnUnits, ()) {
    std::vector<double> values;
    for (int i = 0; i < *rc::gen::inRange(4, 60); ++i)
        values.push_back(1 + *rc::gen::inRange(0, 1000));
    const Scatter one = scatter_of(values);
    for (double& value : values) value *= 1000;
    const Scatter other = scatter_of(values);
    RC_ASSERT(std::abs(other.mean - 1000 * one.mean) < 1e-6 * other.mean);
    RC_ASSERT(std::abs(other.error - 1000 * one.error) < 1e-6 * other.mean);
}

TEST(Scatter, DecidesWhatCountsAsADifference) {
    EXPECT_TRUE(is_beyond_scatter({10, 1, 50}, {14, 1, 50}));
    EXPECT_FALSE(is_beyond_scatter({10, 1, 50}, {12, 1, 50}));
    EXPECT_FALSE(is_beyond_scatter({10, 0, 2}, {14, 0, 50})) << "two steps tell nothing";
}

TEST(StepScatter, LeavesTheFirstStepOutAndTakesThePhasesOfAllRanks) {
    const RunFigures run = run_with_steps({9, 1, 1, 1, 1}, 2);
    EXPECT_EQ(step_scatter(run).mean, 2);
    EXPECT_EQ(step_scatter(run).count, 4);
    EXPECT_EQ(phase_scatter(run, Phase::comm).mean, 0.5);
    EXPECT_EQ(phase_scatter(run, Phase::other).mean, 1.5);
    EXPECT_EQ(step_scatter(RunFigures()).count, 0);
}

TEST(PhaseScatter, TakesEachStepByItsNumber) {
    RunFigures run = run_with_steps({1, 1, 1, 1}, 2);
    std::vector<StepBudget>& steps = run.ranks[1].steps;
    steps.erase(steps.begin() + 1);  // damaged: steps 3 and 4 are left of it
    steps[1].phases[Phase::comm] = 3;
    EXPECT_EQ(phase_scatter(run, Phase::comm).mean, (0 + 1.5 + 0.5) / 3);
}

TEST(CurveGap, IsAsFarAlongAsBothGo) {
    const std::vector<CurvePoint> slow{{100, 0.5}, {200, 0.7}, {300, 0.8}};
    const std::vector<CurvePoint> fast{{50, 0.2}, {150, 0.4}, {250, 0.6}};
    const auto gap = curve_gap(slow, fast);
    ASSERT_TRUE(gap);
    EXPECT_EQ(gap->at, 250);
    EXPECT_NEAR(gap->first, 0.75, 1e-12) << "between two evaluations";
    EXPECT_NEAR(gap->difference(), -0.15, 1e-12);
    EXPECT_FALSE(curve_gap(slow, std::vector<CurvePoint>{{50, 0.2}})) << "before the first";
    EXPECT_FALSE(curve_gap(slow, {}));
}

TEST(CurveGap, TakesAPointThatIsNearEnough) {
    const std::vector<CurvePoint> of_128{{60'032, 0.9}};
    const std::vector<CurvePoint> of_1024{{60'416, 0.84}};
    const auto gap = curve_gap(of_128, of_1024);
    ASSERT_TRUE(gap) << "an epoch of each";
    EXPECT_EQ(gap->second, 0.84);
}

TEST(EvaluationCurve, CountsSamplesByTheBatch) {
    RunFigures run;
    run.evaluations.push_back({.step = 5, .epoch = 1, .figures = {{"test_accuracy", 0.5}}});
    run.evaluations.push_back({.step = 10, .epoch = 2, .figures = {{"test_loss", 0.1}}});
    const auto curve = evaluation_curve(run, "test_accuracy", 64);
    ASSERT_EQ(curve.size(), 1u);
    EXPECT_EQ(curve[0].at, 320);
    EXPECT_EQ(curve[0].value, 0.5);
}

}  // namespace
}  // namespace lockstep
