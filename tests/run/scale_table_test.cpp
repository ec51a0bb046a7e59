// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/scaling.hpp"

#include "support/caught.hpp"

#include <cmath>
#include <numeric>

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

namespace lockstep {
namespace {

using testing::ElementsAre;

constexpr std::size_t part_place(StepPart part) {
    return static_cast<std::size_t>(part);
}

ScalePoint point_of(int ranks, double seconds, double error_s = 0) {
    ScalePoint point;
    point.ranks = ranks;
    point.seconds = seconds;
    point.error_s = error_s;
    return point;
}

ScalePoint point_of(int ranks, const StepParts& parts) {
    ScalePoint point = point_of(ranks, std::accumulate(parts.begin(), parts.end(), 0.0));
    point.parts = parts;
    return point;
}

StepParts drawn_parts() {
    StepParts parts{};
    for (std::size_t i = part_place(StepPart::computing); i < parts.size(); ++i)
        parts[i] = 1e-4 * *rc::gen::inRange(1, 10'000);
    return parts;
}

ScaleForecast forecast_of(int ranks, double seconds, double efficiency) {
    ScaleForecast forecast;
    forecast.row.point = point_of(ranks, seconds);
    forecast.row.efficiency = efficiency;
    return forecast;
}

TEST(ScaleTable, IsTheBooks) {
    const auto rows = scale_table({point_of(8, 109), point_of(1, 707), point_of(2, 393)});
    ASSERT_EQ(rows.size(), 3u);
    EXPECT_EQ(rows[0].efficiency, 1);
    EXPECT_NEAR(rows[1].efficiency, 0.899, 5e-4);
    EXPECT_NEAR(rows[2].efficiency, 0.811, 5e-4);
    EXPECT_NEAR(rows[2].speedup, 6.49, 5e-3);
    EXPECT_NEAR(rows[2].ideal_s, 88.375, 1e-9);
    EXPECT_FALSE(rows[2].losses);
}

TEST(ScaleTable, StartsFromTheFewestRanksThatWereMeasured) {
    const auto rows = scale_table({point_of(2, 100), point_of(4, 50), point_of(8, 50)});
    EXPECT_EQ(rows[1].efficiency, 1);
    EXPECT_EQ(rows[2].efficiency, 0.5);
}

RC_GTEST_PROP(ScaleTable, HasLossesThatSumToWhatIsMissing, ()) {
    const int few = *rc::gen::inRange(1, 5);
    ScalePoint base = point_of(few, drawn_parts());
    ScalePoint more = point_of(few + *rc::gen::inRange(1, 64), drawn_parts());
    base.room = more.room = *rc::gen::inRange(few, 64);
    const auto rows = scale_table({base, more});
    const double sum = std::accumulate(rows[1].losses->begin(), rows[1].losses->end(), 0.0);
    RC_ASSERT(std::abs(sum - (1 - rows[1].efficiency)) < 1e-9 * (1 + std::abs(sum)));
}

RC_GTEST_PROP(RoundedParts, SumToTheWholeRounded, ()) {
    const StepParts parts = drawn_parts();
    const double whole = std::accumulate(parts.begin(), parts.end(), 0.0);
    const auto rounded = rounded_parts(parts, whole, 1000);
    RC_ASSERT(std::accumulate(rounded.begin(), rounded.end(), std::int64_t{0}) ==
              std::llround(whole * 1000));
    for (std::size_t i = 0; i < parts.size(); ++i)
        RC_ASSERT(std::abs(static_cast<double>(rounded[i]) - 1000 * parts[i]) <= 1.001);
}

TEST(ScaleTable, TellsSharedCoresFromSmallerBatches) {
    StepParts alone{}, crowded{};
    alone[part_place(StepPart::computing)] = 8;
    crowded[part_place(StepPart::computing)] = 4.4;  // due: 2; two turns: 4
    ScalePoint base = point_of(1, alone);
    ScalePoint more = point_of(4, crowded);
    base.room = more.room = 2;
    const ScaleRow row = scale_table({base, more}).back();
    EXPECT_NEAR((*row.losses)[part_place(StepPart::sharing)], 2 / 4.4, 1e-9);
    EXPECT_NEAR((*row.losses)[part_place(StepPart::computing)], 0.4 / 4.4, 1e-9);
    EXPECT_EQ(largest_loss(row), StepPart::sharing);
    EXPECT_EQ(largest_loss(scale_table({base, more}).front()), std::nullopt);
}

TEST(StepParts, AreAllOfAStepsPhases) {
    PhaseSeconds phases{};
    for (std::size_t i = 0; i < phases.size(); ++i) phases[i] = std::pow(2, i);
    const StepParts parts = parts_of(phases);
    EXPECT_EQ(std::accumulate(parts.begin(), parts.end(), 0.0), phases.sum());
    EXPECT_EQ(parts[part_place(StepPart::computing)], 6);
    EXPECT_EQ(parts[part_place(StepPart::sharing)], 0);
}

TEST(ScaleAdvice, IsTheMostRanksThatAreEfficientAndFaster) {
    const auto rows = scale_table(
        {point_of(1, 100), point_of(2, 52), point_of(4, 30), point_of(8, 29), point_of(16, 31)});
    const ScaleAdvice advice = advise_scale(rows, {}, 0.5);
    EXPECT_EQ(advice.ranks, 4);
    EXPECT_EQ(advice.not_worth, 8);
    EXPECT_FALSE(advice.not_worth_is_slower);
    EXPECT_EQ(advise_scale(rows, {}, 0.9).ranks, 2);
    EXPECT_EQ(advise_scale(rows, {}, 0.4).ranks, 8);
    EXPECT_TRUE(advise_scale(rows, {}, 0.1).not_worth_is_slower);
}

TEST(ScaleAdvice, IsNotToDistributeWhereMoreRanksAreNoFaster) {
    const auto slower = scale_table({point_of(1, 100), point_of(2, 101)});
    EXPECT_EQ(advise_scale(slower, {}, 0).ranks, 1);
    const auto unsure = scale_table({point_of(1, 100, 2), point_of(2, 97, 2)});
    EXPECT_EQ(advise_scale(unsure, {}, 0).ranks, 1) << "within what they scatter by";
}

TEST(ScaleAdvice, NamesMoreRanksThatTheForecastFindsWorthIt) {
    const auto rows = scale_table({point_of(1, 100), point_of(2, 52)});
    const std::vector<ScaleForecast> forecasts = {
        forecast_of(4, 28, 0.89), forecast_of(8, 18, 0.69), forecast_of(16, 14, 0.45)};
    EXPECT_EQ(advise_scale(rows, forecasts, 0.5).worth_a_try, 8);
    EXPECT_EQ(advise_scale(rows, forecasts, 0.95).worth_a_try, std::nullopt);
}

RC_GTEST_PROP(ScaleAdvice, NeverNamesMoreRanksForMoreEfficiency, ()) {
    std::vector<ScalePoint> points;
    double seconds = 1000;
    for (int ranks = 1; ranks <= 64; ranks *= 2) {
        points.push_back(point_of(ranks, seconds));
        seconds *= 0.01 * *rc::gen::inRange(50, 120);
    }
    const auto rows = scale_table(points);
    const double least = 0.01 * *rc::gen::inRange(0, 100);
    const ScaleAdvice strict = advise_scale(rows, {}, std::min(1.0, least + 0.1));
    const ScaleAdvice lenient = advise_scale(rows, {}, least);
    RC_ASSERT(strict.ranks <= lenient.ranks);
}

// A run in memory: `ranks` with two steps of `seconds` and cores as given.
RunFigures run_of(int ranks, const std::string& deciding, std::optional<PlaceEvent> place = {}) {
    RunFigures run;
    run.root = "run" + std::to_string(ranks);
    run.record.deciding = parse_json(deciding, "deciding");
    run.record.contract = {{"threads", 1}};
    for (int rank = 0; rank < ranks; ++rank) {
        RankFigures figures{.facts = {.rank = rank, .host = "n1"}, .place = place};
        for (std::int64_t step = 1; step <= 3; ++step) {
            StepBudget budget{.step = step};
            budget.phases[Phase::forward] = step == 1 ? 9 : 1;
            budget.phases[Phase::wait] = rank;
            figures.steps.push_back(budget);
        }
        run.ranks.push_back(std::move(figures));
    }
    return run;
}

TEST(ScalePoint, IsTheMeanOfTheRanksSteps) {
    const ScalePoint point = scale_point(run_of(2, R"({"device":"cpu"})"));
    EXPECT_EQ(point.ranks, 2);
    EXPECT_EQ(point.seconds, 1.5);
    EXPECT_EQ((*point.parts)[part_place(StepPart::waiting)], 0.5);
    EXPECT_TRUE(std::isinf(point.room)) << "nobody recorded cores";
}

TEST(ScalePoint, KnowsHowManyRanksItsCoresCanComputeFor) {
    const auto room = [](int ranks, const std::string& device, PlaceEvent place) {
        return scale_point(run_of(ranks, R"({"device":")" + device + R"("})", place)).room;
    };
    EXPECT_EQ(room(4, "cpu", {.cores = 2, .sharers = 4}), 2) << "four ranks on the same two cores";
    EXPECT_EQ(room(2, "cpu", {.cores = 1, .sharers = 1}), 2);
    EXPECT_EQ(room(1, "cpu", {.cores = 8, .sharers = 1}), 8);
    EXPECT_EQ(room(4, "cpu", {.cores = 2, .sharers = 1, .quota = 3}), 3) << "of the node";
    EXPECT_TRUE(std::isinf(room(4, "cuda", {.cores = 2, .sharers = 4})));
}

TEST(ScalePoint, NeedsSteps) {
    RunFigures run = run_of(1, "{}");
    run.ranks[0].steps.clear();
    EXPECT_EQ(test::caught_code([&] { scale_point(run); }), "E420");
}

TEST(SameWork, IsTheSameModelDataAndBatch) {
    const auto runs = [](const std::string& a, const std::string& b) {
        return std::vector<RunFigures>{run_of(1, a), run_of(2, b)};
    };
    const std::string usual = R"({"model":"cnn","data-digest":"x","batch":64,"seed":1})";
    check_same_work(runs(usual, usual));
    const auto refusal = [&](const std::string& other) {
        return test::caught_code([&] { check_same_work(runs(usual, other)); });
    };
    EXPECT_EQ(refusal(R"({"model":"mlp","data-digest":"x","batch":64,"seed":1})"), "E421");
    EXPECT_EQ(refusal(R"({"model":"cnn","data-digest":"y","batch":64,"seed":1})"), "E421");
    EXPECT_EQ(refusal(R"({"model":"cnn","data-digest":"x","batch":128,"seed":1})"), "E421");
    const auto seeds = runs(usual, R"({"model":"cnn","data-digest":"x","batch":64,"seed":2})");
    check_same_work(seeds);
    EXPECT_THAT(other_differences(seeds), ElementsAre("seed"));
}

}  // namespace
}  // namespace lockstep
