// SPDX-License-Identifier: Apache-2.0
#include "lockstep/plan/run_length.hpp"

#include "support/caught.hpp"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

constexpr RunLength length{.steps_per_epoch = 11, .total_steps = 110};

constexpr ScheduleKind decaying[] = {
    ScheduleKind::cosine, ScheduleKind::linear, ScheduleKind::polynomial, ScheduleKind::one_cycle};

double rate(const ScheduleSettings& schedule, std::int64_t step) {
    return learning_rate(2, schedule, step, length);
}

TEST(LearningRate, StaysWhereItIsConstant) {
    for (const std::int64_t step : {0, 50, 109}) EXPECT_EQ(rate({}, step), 2);
}

TEST(LearningRate, WarmsUpToWhereItsScheduleBegins) {
    for (const ScheduleKind kind : {ScheduleKind::constant,
                                    ScheduleKind::step,
                                    ScheduleKind::cosine,
                                    ScheduleKind::linear,
                                    ScheduleKind::polynomial,
                                    ScheduleKind::one_cycle}) {
        const ScheduleSettings schedule{.kind = kind, .warmup_steps = 10};
        const double first = kind == ScheduleKind::one_cycle ? 2.0 / 25 : 2;
        EXPECT_NEAR(rate(schedule, 0), first / 10, 1e-12);
        EXPECT_NEAR(rate(schedule, 4), first / 2, 1e-12);
        EXPECT_NEAR(rate(schedule, 9), first, 1e-12);
        EXPECT_NEAR(rate(schedule, 10), first, 1e-12);
    }
}

TEST(LearningRate, FallsToItsEndOverTheStepsAfterTheWarmUp) {
    for (const ScheduleKind kind : decaying)
        for (const double end : {0.0, 0.5}) {
            const ScheduleSettings schedule{.kind = kind, .warmup_steps = 10, .end = end};
            EXPECT_NEAR(rate(schedule, 110), end, 1e-12);
            EXPECT_NEAR(rate(schedule, 500), end, 1e-12) << "beyond the end";
            EXPECT_GT(rate(schedule, 108), rate(schedule, 109));
        }
}

TEST(LearningRate, FollowsTheCosine) {
    const ScheduleSettings schedule{.kind = ScheduleKind::cosine, .warmup_steps = 10};
    EXPECT_NEAR(rate(schedule, 60), 1, 1e-12);
    // Bits of runs that exist.
    for (std::int64_t step = 10; step < 110; ++step)
        EXPECT_EQ(rate(schedule, step),
                  2 * 0.5 * (1 + std::cos(M_PI * (static_cast<double>(step - 10) / 100))));
}

TEST(LearningRate, FallsLinearlyOrAsAPower) {
    ScheduleSettings schedule{.kind = ScheduleKind::linear, .warmup_steps = 10, .end = 0.5};
    EXPECT_DOUBLE_EQ(rate(schedule, 60), 1.25);
    schedule.kind = ScheduleKind::polynomial;
    EXPECT_DOUBLE_EQ(rate(schedule, 60), 0.5 + 1.5 / 4);
    schedule.power = 3;
    EXPECT_DOUBLE_EQ(rate(schedule, 60), 0.5 + 1.5 / 8);
}

TEST(LearningRate, StepsDownEachPeriodFromTheBeginning) {
    ScheduleSettings schedule{.kind = ScheduleKind::step,
                              .warmup_steps = 3,
                              .every = {Period::Unit::epochs, 3},
                              .gamma = 0.5};
    EXPECT_EQ(rate(schedule, 32), 2);
    EXPECT_EQ(rate(schedule, 33), 1);
    EXPECT_EQ(rate(schedule, 99), 0.25);
    schedule.every = {Period::Unit::steps, 50};
    EXPECT_EQ(rate(schedule, 49), 2);
    EXPECT_EQ(rate(schedule, 100), 0.5);
}

// PyTorch 2.11: OneCycleLR(SGD, max_lr=PEAK, total_steps=N, final_div_factor=PEAK / 25 / END,
// cycle_momentum=False), with 1e30 where END is 0.
TEST(LearningRate, OfOneCycleIsThatOfPyTorch) {
    const auto expect_rates = [](double peak, double end, const std::vector<double>& of_pytorch) {
        const ScheduleSettings schedule{.kind = ScheduleKind::one_cycle, .end = end};
        const auto steps = static_cast<std::int64_t>(of_pytorch.size());
        for (std::int64_t step = 0; step < steps; ++step)
            EXPECT_NEAR(learning_rate(peak, schedule, step, {steps, steps}),
                        of_pytorch[static_cast<std::size_t>(step)],
                        1e-9 * peak)
                << step << " of " << steps;
    };
    expect_rates(2,
                 0.5,
                 {0.08,
                  1.04,
                  2,
                  1.925726651,
                  1.717617351,
                  1.4168907,
                  1.0831093,
                  0.7823826486,
                  0.5742733491,
                  0.5});
    expect_rates(0.01, 0, {0.0004,         0.0008622713073, 0.002160045745, 0.004043355028,
                           0.006149449221, 0.008072667108,  0.009442571837, 0.009995301887,
                           0.009944154131, 0.009752707745,  0.009430247552, 0.008985662536,
                           0.008431208189, 0.007782168678,  0.007056435516, 0.006274014364,
                           0.005456473555, 0.004626349532,  0.00380652561,  0.00301960117,
                           0.002287268681, 0.001629715722,  0.001065068492, 0.0006088921331,
                           0.000273761668, 6.891534954e-05, 4e-34});
}

TEST(LearningRate, WarmsUpToOneCycleThatHasNoStep) {
    const ScheduleSettings schedule{.kind = ScheduleKind::one_cycle, .warmup_steps = 110};
    EXPECT_NEAR(rate(schedule, 109), 2.0 / 25, 1e-12);
}

TEST(PeakRate, FollowsTheBatch) {
    TrainSettings settings;
    settings.batch = 1024;
    settings.optimizer.learning_rate = 0.1;
    EXPECT_EQ(peak_rate(settings), 0.1);
    EXPECT_EQ(scale_text(settings, {}), "");
    settings.schedule.scale = RateScale::square_root;
    EXPECT_DOUBLE_EQ(peak_rate(settings), 0.2);
    settings.schedule.scale = RateScale::linear;
    EXPECT_DOUBLE_EQ(peak_rate(settings), 0.4);
    EXPECT_EQ(scale_text(settings, {.steps_per_epoch = 125, .total_steps = 625}),
              "learning rate 0.4, scaled from 0.1: this run makes 625 updates of batch 1,024, the "
              "reference 2,500 of 256: expect lower accuracy unless it warms up or trains for more "
              "epochs");
    settings.batch = 128;
    EXPECT_EQ(scale_text(settings, {.steps_per_epoch = 1000, .total_steps = 5000}),
              "learning rate 0.05, scaled from 0.1: this run makes 5,000 updates of batch 128, the "
              "reference 2,500 of 256");
}

TEST(LearningRate, OfWhatIsNoEnumeratorIsRefused) {
    const ScheduleSettings none{.kind = static_cast<ScheduleKind>(99)};
    EXPECT_EQ(test::caught_code([&] { rate(none, 0); }), "E103");
}

}  // namespace
}  // namespace lockstep
