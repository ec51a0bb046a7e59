// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/scaling.hpp"

#include "scale/least_squares.hpp"

#include <cmath>
#include <numeric>

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

namespace lockstep {
namespace {

/// The book's, of one training on 1 to 8 GPUs; 16 took 64 s.
std::vector<ScalePoint> book_points(std::size_t most = 8) {
    constexpr std::array<double, 8> seconds{707, 393, 276, 208, 172, 142, 122, 109};
    std::vector<ScalePoint> points;
    for (std::size_t i = 0; i < most; ++i) {
        ScalePoint point;
        point.ranks = static_cast<int>(i) + 1;
        point.seconds = seconds.at(i);
        points.push_back(point);
    }
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

TEST(LeastSquares, AreThePlainOnesWhereNoFactorIsBelowZero) {
    const Solution found = solve_not_negative({{{1, 0}, {0, 2}, {1, 1}}, {3, 8, 7}});
    EXPECT_NEAR(found.factors[0], 3, 1e-9);
    EXPECT_NEAR(found.factors[1], 4, 1e-9);
    EXPECT_NEAR(found.squares, 0, 1e-9);
}

TEST(LeastSquares, LeaveOutWhatWouldBeBelowZeroAndWhatIsZero) {
    const Solution found = solve_not_negative({{{1, 1, 0}, {1, 2, 0}}, {2, 1}});
    EXPECT_NEAR(found.factors[0], 1.5, 1e-9);
    EXPECT_EQ(found.factors[1], 0);
    EXPECT_EQ(found.factors[2], 0);
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

TEST(ScaleModel, ForetellsTheBooksSixteenFromOneToEight) {
    const ScaleForecast forecast = forecast_scale(book_points(), 16);
    EXPECT_NEAR(forecast.row.point.seconds, 64, 6.4);
    EXPECT_LT(forecast.least_s, 64);
    EXPECT_GT(forecast.most_s, 64);
}

TEST(ScaleModel, IsLessSureOfTheBooksSixteenTheLessItKnows) {
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
    std::vector<ScalePoint> points{
        {.ranks = 1, .seconds = 70}, {.ranks = 2, .seconds = 34}, {.ranks = 4, .seconds = 19}};
    const auto width_with_other = [&](std::array<double, 3> seconds) {
        for (std::size_t i = 0; i < points.size(); ++i) {
            points[i].parts = StepParts{};
            (*points[i].parts)[static_cast<std::size_t>(StepPart::other)] = seconds.at(i);
            (*points[i].parts)[static_cast<std::size_t>(StepPart::computing)] =
                points[i].seconds - seconds.at(i);
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
