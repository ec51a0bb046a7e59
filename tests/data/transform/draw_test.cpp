// SPDX-License-Identifier: Apache-2.0
// What images draw, as a whole: that ranges are used up and evenly.
#include "images.hpp"
#include "transform/bound.hpp"

#include <array>
#include <cmath>
#include <map>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using test::bound;

constexpr std::size_t sample_count = 20'000;

std::vector<StageDraw> draws_of(const char* text,
                                const ImageShape& shape,
                                std::uint64_t epoch = 0) {
    std::vector<std::uint64_t> ids(sample_count);
    std::iota(ids.begin(), ids.end(), 0u);
    return bound(text, shape).draw(ids, {11, epoch});
}

/// Mean of chi-squared over its degrees of freedom: 1 for a fair draw, and for 80 or more degrees
/// beyond 1.6 once in ten thousand times.
double unevenness(const std::map<int, int>& counts, int values) {
    const double expected = static_cast<double>(sample_count) / values;
    double chi_squared = expected * (values - static_cast<double>(counts.size()));
    for (const auto& [value, seen] : counts)
        chi_squared += (seen - expected) * (seen - expected) / expected;
    return chi_squared / (values - 1);
}

TEST(TransformDraws, CropsUseEveryOffsetEvenly) {
    std::map<int, int> places;
    for (const StageDraw& draw : draws_of("crop 32 pad 4", {3, 32, 32}))
        ++places[(draw.y_begin + 4) * 9 + draw.x_begin + 4];
    EXPECT_EQ(places.begin()->first, 0);
    EXPECT_EQ(places.rbegin()->first, 80);
    EXPECT_LT(unevenness(places, 81), 1.6);
}

TEST(TransformDraws, FlipsWithTheProbability) {
    for (const auto& [text, expected] :
         {std::pair{"flip", 0.5}, std::pair{"flip 0.1", 0.1}, std::pair{"flip 0", 0.0}}) {
        double flips = 0;
        for (const StageDraw& draw : draws_of(text, {1, 8, 8})) flips += draw.x_step < 0;
        EXPECT_NEAR(flips / sample_count, expected, 0.015) << text;
    }
}

TEST(TransformDraws, AnglesAreEvenBetweenTheLimits) {
    std::map<int, int> degrees;
    for (const StageDraw& draw : draws_of("rotate 45", {1, 8, 8})) {
        EXPECT_NEAR(draw.cosine * draw.cosine + draw.sine * draw.sine, 1, 1e-6);
        ++degrees[static_cast<int>(
            std::floor(std::atan2(draw.sine, draw.cosine) * 180 / 3.14159265358979))];
    }
    EXPECT_GE(degrees.begin()->first, -45);
    EXPECT_LE(degrees.rbegin()->first, 44);
    EXPECT_LT(unevenness(degrees, 90), 1.6);
}

TEST(TransformDraws, SigmasAreEvenBetweenTheLimits) {
    std::map<int, int> tenths;
    for (const StageDraw& draw : draws_of("blur 5 1-11", {1, 8, 8})) {
        const double ratio = draw.weights[1] / draw.weights[0];  // exp(-3 / (2 sigma^2))
        ++tenths[static_cast<int>(std::sqrt(-1.5 / std::log(ratio)) * 10)];
    }
    EXPECT_GE(tenths.begin()->first, 10);
    EXPECT_LE(tenths.rbegin()->first, 110);
    EXPECT_LT(unevenness(tenths, 100), 1.6);
}

TEST(TransformDraws, BlursWithNormalisedWeights) {
    for (const StageDraw& draw : draws_of("blur 15 7-7", {1, 16, 16})) {
        double outer = 0;
        for (const float weight : draw.weights) outer += 2.0 * weight;
        const double centre = draw.weights[0] / std::exp(-1 / 98.0);
        ASSERT_NEAR(outer + centre, 1, 1e-6);
        ASSERT_NEAR(draw.weights[6] / draw.weights[0], std::exp(-48 / 98.0), 1e-6);
    }
}

TEST(TransformDraws, CutsAroundEveryPixelEvenly) {
    std::map<int, int> corners;
    for (const StageDraw& draw : draws_of("cutout 1", {1, 9, 9})) {
        EXPECT_EQ(draw.cut_bottom - draw.cut_top, 1);
        EXPECT_EQ(draw.cut_right - draw.cut_left, 1);
        ++corners[draw.cut_top * 9 + draw.cut_left];
    }
    EXPECT_LT(unevenness(corners, 81), 1.6);
}

TEST(TransformDraws, StepsAndEpochsAreIndependent) {
    const auto all = draws_of("flip, resize 8x8, flip", {1, 8, 8});
    const auto next = draws_of("flip, resize 8x8, flip", {1, 8, 8}, 1);
    double equal_steps = 0, equal_epochs = 0;
    for (std::size_t i = 0; i < sample_count; ++i) {
        equal_steps += all[3 * i].x_step == all[3 * i + 2].x_step;
        equal_epochs += all[3 * i].x_step == next[3 * i].x_step;
    }
    EXPECT_NEAR(equal_steps / sample_count, 0.5, 0.015);
    EXPECT_NEAR(equal_epochs / sample_count, 0.5, 0.015);
}

TEST(ExactMath, AgreesWithTheLibrary) {
    for (int i = -3600; i <= 3600; ++i) {
        const double radians = i / 10.0 * 3.14159265358979323846 / 180;
        const CosineSine turn = cosine_sine(i / 10.0);
        ASSERT_NEAR(turn.cosine, std::cos(radians), 2e-14) << i;
        ASSERT_NEAR(turn.sine, std::sin(radians), 2e-14) << i;
    }
    EXPECT_EQ(cosine_sine(0).cosine, 1);
    EXPECT_EQ(cosine_sine(0).sine, 0);
    for (double x = -699; x <= 0; x += 0.37)
        ASSERT_NEAR(exponential(x) / std::exp(x), 1, 1e-14) << x;
    EXPECT_EQ(exponential(0), 1);
    EXPECT_EQ(exponential(-1e9), 0);
    for (double x = 1e-300; x < 1e10; x *= 1.37)
        ASSERT_NEAR(logarithm(x), std::log(x), 1e-14 * std::max(1.0, std::abs(std::log(x)))) << x;
    EXPECT_EQ(logarithm(1), 0);
}

}  // namespace
}  // namespace lockstep
