// SPDX-License-Identifier: Apache-2.0
#include "lockstep/plan/losses.hpp"

#include <cmath>
#include <random>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

constexpr std::size_t parameters = 50;

// A mean over samples, each of gradient 1 in every parameter and noise of the deviation given.
std::vector<double> gradient(std::mt19937& random, double samples, double deviation) {
    std::normal_distribution<double> noise(0, deviation / std::sqrt(samples));
    std::vector<double> values(parameters);
    for (double& value : values) value = 1 + noise(random);
    return values;
}

double squares(const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += value * value;
    return sum;
}

GradientNorms step_of(std::mt19937& random, int leaves, double leaf_samples, double deviation) {
    std::vector<double> mean(parameters);
    GradientNorms norms{.leaf_samples = leaf_samples, .step_samples = leaf_samples * leaves};
    for (int leaf = 0; leaf < leaves; ++leaf) {
        const std::vector<double> values = gradient(random, leaf_samples, deviation);
        norms.leaf_squares += squares(values) / leaves;
        for (std::size_t i = 0; i < parameters; ++i) mean[i] += values[i] / leaves;
    }
    norms.step_squares = squares(mean);
    return norms;
}

// tr(S) / |G|^2 is the deviation squared, whatever the leaves.
TEST(NoiseScale, IsThatOfTheSamples) {
    std::mt19937 random(1);
    for (const int leaves : {2, 8})
        for (const double deviation : {1.0, 4.0}) {
            NoiseScale scale;
            double sum = 0;
            for (int step = 0; step < 200; ++step) {
                scale.add(step_of(random, leaves, 16, deviation));
                if (step >= 100) sum += scale.samples().value_or(0) / 100;
            }
            EXPECT_NEAR(sum / (deviation * deviation), 1, 0.25) << leaves << " " << deviation;
        }
}

TEST(NoiseScale, IsNotKnownWhereNoiseHidesTheGradient) {
    NoiseScale scale;
    EXPECT_EQ(scale.samples(), std::nullopt);
    scale.add({.leaf_squares = 4, .step_squares = 1, .leaf_samples = 1, .step_samples = 4});
    EXPECT_EQ(scale.samples(), std::nullopt);
}

}  // namespace
}  // namespace lockstep
