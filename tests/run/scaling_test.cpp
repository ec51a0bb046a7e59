// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/comparison.hpp"

#include "scale/scale_model.hpp"
#include "support/unit.hpp"

#include <cmath>
#include <numeric>

#include <rapidcheck/gtest.h>

namespace lockstep {
namespace {

ScalePoint point_of(int ranks, double seconds, double error_s = 0) {
    return {.ranks = ranks, .seconds = seconds, .error_s = error_s};
}

ScalePoint point_of(int ranks, const StepParts& parts) {
    ScalePoint point = point_of(ranks, std::accumulate(parts.begin(), parts.end(), 0.0));
    point.parts = parts;
    return point;
}

StepParts drawn_parts() {
    StepParts parts{};
    for (auto i = static_cast<std::size_t>(StepPart::computing); i < parts.size(); ++i)
        parts[i] = 1e-4 * *rc::gen::inRange(1, 10'000);
    return parts;
}

ScaleForecast forecast_of(int ranks, double seconds, double efficiency) {
    return {.row = {.point = point_of(ranks, seconds), .efficiency = efficiency}};
}

TEST(ScaleTable, IsTheBooksAndStartsFromTheFewestRanksThatWereMeasured) {
    const auto rows = scale_table({point_of(8, 109), point_of(1, 707), point_of(2, 393)});
    ASSERT_EQ(rows.size(), 3u);
    EXPECT_EQ(rows[0].efficiency, 1);
    EXPECT_NEAR(rows[1].efficiency, 0.899, 5e-4);
    EXPECT_NEAR(rows[2].efficiency, 0.811, 5e-4);
    EXPECT_NEAR(rows[2].speedup, 6.49, 5e-3);
    EXPECT_NEAR(rows[2].ideal_s, 88.375, 1e-9);
    EXPECT_FALSE(rows[2].losses);
    const auto from_two = scale_table({point_of(2, 100), point_of(4, 50), point_of(8, 50)});
    EXPECT_EQ(from_two[1].efficiency, 1);
    EXPECT_EQ(from_two[2].efficiency, 0.5);
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
    alone[StepPart::computing] = 8;
    crowded[StepPart::computing] = 4.4;  // due: 2; two turns: 4
    ScalePoint base = point_of(1, alone);
    ScalePoint more = point_of(4, crowded);
    base.room = more.room = 2;
    const ScaleRow row = scale_table({base, more}).back();
    EXPECT_NEAR((*row.losses)[StepPart::sharing], 2 / 4.4, 1e-9);
    EXPECT_NEAR((*row.losses)[StepPart::computing], 0.4 / 4.4, 1e-9);
    EXPECT_EQ(largest_loss(row), StepPart::sharing);
    EXPECT_EQ(largest_loss(scale_table({base, more}).front()), std::nullopt);
}

TEST(StepParts, AreAllOfAStepsPhases) {
    PhaseSeconds phases{};
    for (std::size_t i = 0; i < phases.size(); ++i) phases[i] = std::pow(2, i);
    const StepParts parts = parts_of(phases);
    EXPECT_EQ(std::accumulate(parts.begin(), parts.end(), 0.0), phases.sum());
    EXPECT_EQ(parts[StepPart::computing], 6);
    EXPECT_EQ(parts[StepPart::sharing], 0);
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
    EXPECT_EQ(advise_scale(scale_table({point_of(1, 100), point_of(2, 101)}), {}, 0).ranks, 1);
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
    EXPECT_EQ((*point.parts)[StepPart::waiting], 0.5);
    EXPECT_TRUE(std::isinf(point.room)) << "nobody recorded cores";
    RunFigures run = run_of(1, "{}");
    run.ranks[0].steps.clear();
    EXPECT_EQ(caught_code([&] { scale_point(run); }), "E420");
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

TEST(SameWork, IsTheSameModelDataAndBatch) {
    const auto runs = [](const std::string& a, const std::string& b) {
        return std::vector<RunFigures>{run_of(1, a), run_of(2, b)};
    };
    const std::string usual = R"({"model":"cnn","data-digest":"x","batch":64,"seed":1})";
    check_same_work(runs(usual, usual));
    const auto refusal = [&](const std::string& other) {
        return caught_code([&] { check_same_work(runs(usual, other)); });
    };
    EXPECT_EQ(refusal(R"({"model":"mlp","data-digest":"x","batch":64,"seed":1})"), "E421");
    EXPECT_EQ(refusal(R"({"model":"cnn","data-digest":"y","batch":64,"seed":1})"), "E421");
    EXPECT_EQ(refusal(R"({"model":"cnn","data-digest":"x","batch":128,"seed":1})"), "E421");
    const auto seeds = runs(usual, R"({"model":"cnn","data-digest":"x","batch":64,"seed":2})");
    check_same_work(seeds);
    EXPECT_THAT(other_differences(seeds), ElementsAre("seed"));
}

/// The book's, of one training on 1 to 8 GPUs; 16 took 64 s.
std::vector<ScalePoint> book_points(std::size_t most = 8) {
    constexpr std::array<double, 8> seconds{707, 393, 276, 208, 172, 142, 122, 109};
    std::vector<ScalePoint> points;
    for (std::size_t i = 0; i < most; ++i)
        points.push_back(point_of(static_cast<int>(i) + 1, seconds.at(i)));
    return points;
}

double drawn_seconds() {
    return 1e-3 * *rc::gen::inRange(0, 100'000);
}

/// Times that follow a model of known factors.
std::vector<ScalePoint> made_points(const ScaleModel& model, std::vector<int> ranks) {
    std::vector<ScalePoint> points;
    for (const int count : ranks) points.push_back(model.at(count));
    return points;
}

TEST(LeastSquares, AreThePlainOnesOfFactorsThatAreNotBelowZero) {
    const Solution found = solve_not_negative({{{1, 0}, {0, 2}, {1, 1}}, {3, 8, 7}});
    EXPECT_NEAR(found.factors[0], 3, 1e-9);
    EXPECT_NEAR(found.factors[1], 4, 1e-9);
    EXPECT_NEAR(found.squares, 0, 1e-9);
    const Solution less = solve_not_negative({{{1, 1, 0}, {1, 2, 0}}, {2, 1}});
    EXPECT_NEAR(less.factors[0], 1.5, 1e-9);
    EXPECT_EQ(less.factors[1], 0) << "it would be below zero";
    EXPECT_EQ(less.factors[2], 0) << "it is of zeros";
}

RC_GTEST_PROP(LeastSquares, AreNoWorseThanAnyOtherFactors, ()) {
    const auto number = [] { return 0.1 * *rc::gen::inRange(-50, 50); };
    Equations equations;
    for (int i = 0; i < 5; ++i) {
        equations.rows.push_back({number(), number(), number()});
        equations.targets.push_back(number());
    }
    const Solution found = solve_not_negative(equations);
    for (const double factor : found.factors) RC_ASSERT(factor >= 0);
    for (int i = 0; i < 20; ++i) {
        const std::vector<double> other{std::abs(number()), std::abs(number()), std::abs(number())};
        double squares = 0;
        for (std::size_t row = 0; row < equations.rows.size(); ++row)
            squares += std::pow(std::inner_product(other.begin(),
                                                   other.end(),
                                                   equations.rows[row].begin(),
                                                   -equations.targets[row]),
                                2);
        RC_ASSERT(found.squares <= squares + 1e-9);
    }
}

TEST(ScaleModel, ForetellsTheBooksSixteenAndIsLessSureTheLessItKnows) {
    EXPECT_NEAR(forecast_scale(book_points(), 16).row.point.seconds, 64, 6.4);
    double width = 0;
    for (const std::size_t known : {8u, 6u, 4u, 2u}) {
        const ScaleForecast forecast = forecast_scale(book_points(known), 16);
        EXPECT_LT(forecast.least_s, 64) << known;
        EXPECT_GT(forecast.most_s, 64) << known;
        EXPECT_GT(forecast.most_s - forecast.least_s, width) << known;
        width = forecast.most_s - forecast.least_s;
    }
}

RC_GTEST_PROP(ScaleModel, FindsAModelThatTimesFollow, ()) {
    ScaleModel truth{.terms = {{StepPart::computing, ScaleTerm::work, 1 + drawn_seconds()},
                               {StepPart::computing, ScaleTerm::fixed, drawn_seconds()},
                               {StepPart::computing, ScaleTerm::hops, drawn_seconds()}}};
    const auto points = made_points(truth, {1, 2, 3, 4, 8});
    for (const int ranks : {6, 16, 1000}) {
        const ScaleForecast forecast = forecast_scale(points, ranks);
        const double expected = truth.at(ranks).seconds;
        RC_ASSERT(std::abs(forecast.row.point.seconds / expected - 1) < 1e-6);
        RC_ASSERT(forecast.least_s <= expected * (1 + 1e-6));
        RC_ASSERT(forecast.most_s >= expected * (1 - 1e-6));
    }
}

RC_GTEST_PROP(ScaleModel, TellsTermsApartWherePartsAreKnown, ()) {
    ScaleModel truth{.terms = {{StepPart::computing, ScaleTerm::work, 1 + drawn_seconds()},
                               {StepPart::updating, ScaleTerm::fixed, drawn_seconds()},
                               {StepPart::reducing, ScaleTerm::hops, drawn_seconds()},
                               {StepPart::reducing, ScaleTerm::bytes, drawn_seconds()},
                               {StepPart::waiting, ScaleTerm::spread, drawn_seconds()}},
                     .has_parts = true};
    const ScalePoint found = forecast_scale(made_points(truth, {1, 2, 4}), 64).row.point;
    const ScalePoint expected = truth.at(64);
    for (std::size_t i = 0; i < expected.parts->size(); ++i)
        RC_ASSERT(std::abs((*found.parts)[i] - (*expected.parts)[i]) < 1e-6 * expected.seconds);
}

RC_GTEST_PROP(ScaleModel, ForetellsNoTimeThatGrowsWhereTimesOnlyShrank, ()) {
    auto points = book_points();
    for (ScalePoint& point : points) point.seconds *= 1 + 1e-3 * *rc::gen::inRange(-50, 50);
    double seconds = 1e9;
    for (const int ranks : {8, 16, 32, 64}) {
        const ScaleForecast forecast = forecast_scale(points, ranks);
        RC_ASSERT(forecast.row.point.seconds > 0);
        RC_ASSERT(forecast.least_s <= forecast.row.point.seconds);
        RC_ASSERT(forecast.most_s >= forecast.row.point.seconds);
        if (fit_scale_model(points).terms.back().seconds > 0) continue;  // log2 P grows
        RC_ASSERT(forecast.row.point.seconds <= seconds);
        seconds = forecast.row.point.seconds;
    }
}

// A band that is narrower the more terms the smallest part takes would be upside down.
TEST(ScaleModel, IsNoSurerForAPartThatTakesNoTime) {
    std::vector<ScalePoint> points{point_of(1, 70), point_of(2, 34), point_of(4, 19)};
    const auto width_with_other = [&](std::array<double, 3> seconds) {
        for (std::size_t i = 0; i < points.size(); ++i) {
            points[i].parts = StepParts{};
            (*points[i].parts)[StepPart::other] = seconds.at(i);
            (*points[i].parts)[StepPart::computing] = points[i].seconds - seconds.at(i);
        }
        const ScaleForecast forecast = forecast_scale(points, 8);
        return forecast.most_s / forecast.least_s;
    };
    EXPECT_NEAR(width_with_other({0.02, 0.01, 0.01}), width_with_other({0.02, 0.015, 0.018}), 0.02);
}

TEST(ScaleModel, IsSurerTheLessStepsScatter) {
    auto points = book_points();
    const double width = forecast_scale(points, 16).most_s;
    for (ScalePoint& point : points) point.error_s = 0.2 * point.seconds;
    EXPECT_GT(forecast_scale(points, 16).most_s, width);
}

}  // namespace
}  // namespace lockstep
