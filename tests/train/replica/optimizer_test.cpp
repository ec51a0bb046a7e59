// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/optimizer.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/random.hpp"

#include "support/caught.hpp"

#include <array>
#include <cmath>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace lockstep {
namespace {

std::vector<float> noise(std::size_t count, std::uint64_t seed) {
    CounterRandom random(Purpose::test, {seed});
    std::vector<float> values(count);
    for (float& value : values) value = static_cast<float>(random.uniform() * 2 - 1);
    return values;
}

struct Trained {
    std::vector<float> parameters;
    std::vector<std::vector<float>> state;
    bool operator==(const Trained&) const = default;
};

// Five steps; the vector is cut into pieces at `cuts`, each updated by itself.
Trained train(const OptimizerSettings& settings,
              std::size_t count,
              const std::vector<std::size_t>& cuts) {
    const auto optimizer = make_optimizer(settings);
    Trained result{noise(count, 1), {}};
    result.state.assign(optimizer->state_names().size(), std::vector<float>(count, 0));
    for (std::int64_t step = 1; step <= 5; ++step) {
        const auto gradients = noise(count, static_cast<std::uint64_t>(step) + 10);
        std::size_t begin = 0;
        for (const std::size_t end : cuts) {
            std::vector<float*> state;
            for (auto& vector : result.state) state.push_back(vector.data() + begin);
            optimizer->update(result.parameters.data() + begin,
                              gradients.data() + begin,
                              state,
                              end - begin,
                              {step, 0.01});
            begin = end;
        }
    }
    return result;
}

class EveryOptimizer : public testing::TestWithParam<OptimizerKind> {};
INSTANTIATE_TEST_SUITE_P(Kinds,
                         EveryOptimizer,
                         testing::Values(OptimizerKind::sgd,
                                         OptimizerKind::adam,
                                         OptimizerKind::adamw));

TEST_P(EveryOptimizer, ScalesGradientsBeforeAnythingElse) {
    OptimizerSettings settings;
    settings.kind = GetParam();
    settings.weight_decay = 0.1;
    const auto update = [&](float gradient, float scale) {
        const auto optimizer = make_optimizer(settings);
        float parameter = 2, m = 0.5, v = 0.25;
        const std::array<float*, 2> state = {&m, &v};
        optimizer->update(&parameter,
                          &gradient,
                          std::span(state).first(optimizer->state_names().size()),
                          1,
                          {3, 0.1, scale});
        return std::array{parameter, m, v};
    };
    EXPECT_EQ(update(4, 0.25F), update(1, 1));
    EXPECT_NE(update(4, 0.25F), update(4, 1));
}

TEST_P(EveryOptimizer, GivesEqualBitsHoweverTheVectorIsCut) {
    OptimizerSettings settings;
    settings.kind = GetParam();
    settings.weight_decay = 0.01;
    const Trained whole = train(settings, 1000, {1000});
    EXPECT_EQ(whole, train(settings, 1000, {16, 160, 176, 1000}));
    EXPECT_EQ(whole, train(settings, 1000, {1, 4, 7, 500, 999, 1000}));
}

TEST_P(EveryOptimizer, LeavesEmptyStripesAlone) {
    OptimizerSettings settings;
    settings.kind = GetParam();
    EXPECT_EQ(train(settings, 0, {0}).parameters.size(), 0U);
}

TEST(Adam, FollowsThePaper) {
    OptimizerSettings settings;
    const auto optimizer = make_optimizer(settings);
    float parameter = 1, m = 0, v = 0;
    double p = 1, dm = 0, dv = 0;
    for (int step = 1; step <= 20; ++step) {
        const float gradient = 0.5F * parameter;
        float* state[] = {&m, &v};
        const double g = 0.5 * p;
        optimizer->update(&parameter, &gradient, state, 1, {step, 0.1});
        dm = 0.9 * dm + 0.1 * g;
        dv = 0.999 * dv + 0.001 * g * g;
        p -= 0.1 * (dm / (1 - std::pow(0.9, step))) /
             (std::sqrt(dv / (1 - std::pow(0.999, step))) + 1e-8);
        EXPECT_NEAR(parameter, p, 1e-4) << "step " << step;
    }
}

TEST(Sgd, AccumulatesVelocity) {
    OptimizerSettings settings;
    settings.kind = OptimizerKind::sgd;
    settings.momentum = 0.5;
    const auto optimizer = make_optimizer(settings);
    float parameter = 0, velocity = 0;
    const float gradient = 1;
    float* state[] = {&velocity};
    optimizer->update(&parameter, &gradient, state, 1, {1, 1.0});
    optimizer->update(&parameter, &gradient, state, 1, {2, 1.0});
    EXPECT_FLOAT_EQ(velocity, 1.5F);
    EXPECT_FLOAT_EQ(parameter, -2.5F);
}

TEST(LearningRate, WarmsUpAndFollowsTheCosine) {
    OptimizerSettings optimizer;
    optimizer.learning_rate = 1;
    ScheduleSettings schedule{ScheduleKind::cosine, 10};
    EXPECT_DOUBLE_EQ(learning_rate(optimizer, schedule, 0, 110), 0.1);
    EXPECT_DOUBLE_EQ(learning_rate(optimizer, schedule, 9, 110), 1.0);
    EXPECT_DOUBLE_EQ(learning_rate(optimizer, schedule, 10, 110), 1.0);
    EXPECT_NEAR(learning_rate(optimizer, schedule, 60, 110), 0.5, 1e-12);
    EXPECT_NEAR(learning_rate(optimizer, schedule, 110, 110), 0.0, 1e-12);
    schedule.kind = ScheduleKind::constant;
    EXPECT_DOUBLE_EQ(learning_rate(optimizer, schedule, 100, 110), 1.0);
}

TEST(MakeOptimizer, RefusesWhatIsNoEnumerator) {
    const OptimizerSettings none{.kind = static_cast<OptimizerKind>(99)};
    EXPECT_EQ(test::caught_code([&] { make_optimizer(none); }), "E103");
}

}  // namespace
}  // namespace lockstep
