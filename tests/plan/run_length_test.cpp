// SPDX-License-Identifier: Apache-2.0
#include "lockstep/plan/run_length.hpp"

#include "support/unit.hpp"

#include <cmath>
#include <vector>

namespace lockstep {
namespace {

TrainSettings settings_of(std::int64_t batch, int virtual_ranks, int micro_batches = 1) {
    TrainSettings settings;
    settings.batch = batch;
    settings.virtual_ranks = virtual_ranks;
    settings.micro_batches = micro_batches;
    settings.epochs = 3;
    return settings;
}

// What single_rows() says of a run over `samples`; "" where it says nothing.
std::string reason(const TrainSettings& settings, std::int64_t samples) {
    const auto error = single_rows(settings, samples, length_of(settings, samples));
    return error ? error->why() : "";
}

TEST(LengthOf, CountsShortStepsUnlessTheyAreDropped) {
    TrainSettings settings = settings_of(30, 2);
    EXPECT_EQ(length_of(settings, 100).steps_per_epoch, 4);
    EXPECT_EQ(length_of(settings, 100).total_steps, 12);
    EXPECT_EQ(dropped_samples(settings, 100), 0u);
    settings.drops_last = true;
    EXPECT_EQ(length_of(settings, 100).steps_per_epoch, 3);
    EXPECT_EQ(length_of(settings, 100).total_steps, 9);
    EXPECT_EQ(dropped_samples(settings, 100), 10u);
    EXPECT_EQ(length_of(settings, 90).steps_per_epoch, 3);
    EXPECT_EQ(dropped_samples(settings, 90), 0u);
    settings.max_steps = 5;
    EXPECT_EQ(length_of(settings, 100).total_steps, 5);
}

TEST(SingleRows, AreThoseOfLeavesOfTheLastStepIfThereIsOneOrOfEachStep) {
    TrainSettings settings = settings_of(16, 4);
    EXPECT_EQ(reason(settings, 160), "");
    for (const std::int64_t rest : {1, 4, 5, 7})
        EXPECT_THAT(reason(settings, 160 + rest), HasSubstr("the last step of an epoch has"))
            << rest;
    for (const std::int64_t rest : {8, 9, 15}) EXPECT_EQ(reason(settings, 160 + rest), "") << rest;
    settings.max_steps = 10;
    EXPECT_EQ(reason(settings, 161), "");
    settings.max_steps = 11;
    EXPECT_NE(reason(settings, 161), "");
    settings.drops_last = true;
    EXPECT_EQ(reason(settings, 161), "");
    EXPECT_THAT(reason(settings_of(4, 4), 160), HasSubstr("each step has 4 samples"));
    EXPECT_EQ(reason(settings_of(12, 4), 168), "");
    EXPECT_THAT(reason(settings_of(12, 4, 2), 168),
                HasSubstr("each step has 12 samples, for 4 virtual ranks in 2 micro-batches each"));
    EXPECT_EQ(reason(settings_of(16, 4, 2), 160), "");
}

constexpr RunLength length{.steps_per_epoch = 11, .total_steps = 110};

constexpr ScheduleKind decaying[] = {
    ScheduleKind::cosine, ScheduleKind::linear, ScheduleKind::polynomial, ScheduleKind::one_cycle};

double rate(const ScheduleSettings& schedule, std::int64_t step) {
    return learning_rate(2, schedule, step, length);
}

TEST(LearningRate, StaysWhereItIsConstantAndIsRefusedOfWhatIsNoEnumerator) {
    for (const std::int64_t step : {0, 50, 109}) EXPECT_EQ(rate({}, step), 2);
    const ScheduleSettings none{.kind = static_cast<ScheduleKind>(99)};
    EXPECT_EQ(caught_code([&] { rate(none, 0); }), "E103");
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
    EXPECT_NEAR(rate({.kind = ScheduleKind::one_cycle, .warmup_steps = 110}, 109), 2.0 / 25, 1e-12)
        << "no step is left for the cycle";
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

TEST(LearningRate, FollowsTheCosineLineOrPower) {
    ScheduleSettings schedule{.kind = ScheduleKind::cosine, .warmup_steps = 10};
    EXPECT_NEAR(rate(schedule, 60), 1, 1e-12);
    // Bits of runs that exist.
    for (std::int64_t step = 10; step < 110; ++step)
        EXPECT_EQ(rate(schedule, step),
                  2 * 0.5 * (1 + std::cos(M_PI * (static_cast<double>(step - 10) / 100))));
    schedule = {.kind = ScheduleKind::linear, .warmup_steps = 10, .end = 0.5};
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

constexpr ModelTraits small{.parameters = 1'000'000};
constexpr ModelTraits with_norm{.parameters = 1'000'000, .looks_across_samples = true};

int chosen(std::int64_t batch,
           const ModelTraits& model = small,
           int ranks = 1,
           std::int64_t samples = 60'000) {
    TrainSettings settings;
    settings.batch = batch;
    return default_virtual_ranks(settings, samples, model, ranks);
}

TEST(DefaultVirtualRanks, LeaveEightSamplesToALeaf32ToBatchStatisticsAndAGigabyteToGradients) {
    EXPECT_EQ(chosen(4096), 64);
    EXPECT_EQ(chosen(512), 64);
    EXPECT_EQ(chosen(128), 16);
    EXPECT_EQ(chosen(120), 8);
    EXPECT_EQ(chosen(15), 1);
    EXPECT_EQ(chosen(512, small, 1, 40), 4);
    EXPECT_EQ(chosen(128, small, 17), 32);
    EXPECT_EQ(chosen(128, small, 32), 32);
    EXPECT_EQ(chosen(128, small, 128), 128);
    for (int ranks = 1; ranks <= 16; ++ranks) EXPECT_EQ(chosen(128, small, ranks), 16);
    TrainSettings settings;
    settings.max_steps = 1;
    EXPECT_EQ(default_virtual_ranks(settings, 1285, with_norm, 1), 2);
    EXPECT_EQ(chosen(128, with_norm), 4);
    // An epoch's last step has 5 samples: of four leaves three would have a single one.
    EXPECT_EQ(chosen(128, with_norm, 1, 1285), 2);
    EXPECT_EQ(chosen(512, {.parameters = 25'557'032}), 64);
    EXPECT_EQ(chosen(512, {.parameters = 40'000'000}), 32);
    EXPECT_EQ(chosen(512, {.parameters = 86'567'656}), 4);
}

// A fully connected network has one product for each weight, a convolutional one has many.
TEST(DefaultVirtualRanks, LeaveEnoughProductsForEachWeight) {
    const ModelTraits mlp{.parameters = 203'530, .products = 203'264};
    EXPECT_EQ(chosen(128, mlp), 4);
    EXPECT_EQ(chosen(1024, mlp), 32);
    EXPECT_EQ(chosen(32, mlp), 4) << "some room to grow";
    EXPECT_EQ(chosen(16, mlp), 2) << "of eight samples";
    EXPECT_EQ(chosen(128, mlp, 8), 8) << "as many as ranks need";
    EXPECT_EQ(chosen(128, {.parameters = 1'630'090, .products = 5'450'000}), 16);
}

TEST(DefaultVirtualRanks, AreFewWhereLeavesAreNotComputedTogether) {
    TrainSettings split, narrow, plain;
    split.micro_batches = 2;
    narrow.precision = Precision::bf16;
    plain.plain_summation = true;
    for (const TrainSettings& settings : {split, narrow, plain})
        EXPECT_EQ(default_virtual_ranks(settings, 60'000, small, 2), 2)
            << settings.micro_batches << settings.plain_summation;
}

// A limit 1000 s from now, when now_s() says 50.
constexpr std::int64_t deadline = 1'700'001'000;
constexpr double unix_now_s = 1'700'000'000, begin_s = 50;

TEST(SaveInterval, LosesTheLeastTimeWithinTheShareForSaves) {
    const double interval_s = save_interval_s(8, 36'000, 0.5);
    EXPECT_NEAR(interval_s, std::sqrt(2 * 8 * 36'000.0), 1e-9);
    const auto lost = [](double every_s) { return 8 / every_s + every_s / 2 / 36'000; };
    EXPECT_LT(lost(interval_s), lost(0.8 * interval_s));
    EXPECT_LT(lost(interval_s), lost(1.2 * interval_s));
    EXPECT_EQ(save_interval_s(8, 600, 0.01), 800);
    EXPECT_LT(save_interval_s(8, 600, 0.5), 800);
}

// Returns true if the cost of a save became known.
bool add_steps(SaveCost& cost, int steps, double wall_s, bool is_beside) {
    bool is_known = false;
    for (int i = 0; i < steps; ++i) is_known = cost.add_step(wall_s, is_beside) || is_known;
    return is_known;
}

SaveCost after_first_steps() {
    SaveCost cost;
    add_steps(cost, 10, 9, false);  // they do not count
    return cost;
}

// Two writers hold up one another's ranks: the sum of a rank's own work was a third of it.
TEST(SaveCost, IsWhatTheStepsBesideASaveShow) {
    SaveCost cost = after_first_steps();
    EXPECT_EQ(cost.mean_s(), 0);
    EXPECT_EQ(cost.usual_step_s(), 0);
    add_steps(cost, 15, 0.300, false);  // slow, too: the steps after the save tell
    add_steps(cost, 20, 0.105, true);
    cost.add_step(8, true);  // waited for data
    cost.add_save(0.001, 0.04);
    EXPECT_FALSE(add_steps(cost, 15, 0.100, false));
    EXPECT_EQ(cost.mean_s(), 0);
    EXPECT_TRUE(add_steps(cost, 16, 0.100, false));
    EXPECT_NEAR(cost.usual_step_s(), 0.100, 1e-9);
    add_steps(cost, 100, 0.200, false);  // the machine is slower now, for longer than is remembered
    add_steps(cost, 20, 0.205, true);
    cost.add_save(0.001, 0.04);
    EXPECT_TRUE(add_steps(cost, 1, 0.300, true)) << "the next save tells it";
    EXPECT_GT(cost.mean_s(), 0.001 + 20 * 0.005 - 1e-9);
}

TEST(SaveCost, IsNeverLessThanWhatIsKnown) {
    SaveCost cost = after_first_steps();
    add_steps(cost, 40, 0.100, false);
    add_steps(cost, 20, 0.099, true);
    cost.add_save(0.001, 0.04);
    EXPECT_TRUE(add_steps(cost, 16, 0.100, false));
    EXPECT_NEAR(cost.mean_s(), 0.041, 1e-9);
    add_steps(cost, 3, 5, true);  // too few to say
    cost.add_save(0.001, 0.04);
    EXPECT_TRUE(add_steps(cost, 16, 0.100, false));
    EXPECT_NEAR(cost.mean_s(), 0.041, 1e-9);
    SaveCost blocking = after_first_steps();
    blocking.add_save(0.3, 0);
    EXPECT_TRUE(add_steps(blocking, 1, 0.1, false));
    EXPECT_NEAR(blocking.mean_s(), 0.3, 1e-9);
}

TEST(SaveCost, CountsWhatTheScatterOfStepsMayHide) {
    SaveCost cost = after_first_steps();
    const auto add_save = [&] {
        for (int i = 0; i < 16; ++i) cost.add_step(0.105, true);
        cost.add_save(0, 0.01);
        for (int i = 0; i < 64; ++i) cost.add_step(i % 2 == 0 ? 0.09 : 0.11, false);
    };
    add_save();
    const double shown_s = 16 * 0.005,
                 error_s = 1.2533 * 1.4826 * 0.01 * std::sqrt(16 * (1 + 16.0 / 64));
    EXPECT_GT(cost.mean_s(), shown_s + 1.5 * error_s);
    EXPECT_LT(cost.mean_s(), shown_s + 3 * error_s);
    const double first_s = cost.mean_s();
    for (int i = 0; i < 3; ++i) add_save();
    EXPECT_NEAR(cost.mean_s(), shown_s + error_s, 0.2 * error_s) << "of four saves: half of it";
    EXPECT_LT(cost.mean_s(), first_s);
}

TEST(SaveCost, IsSpreadSoThatStepsShowAFiftieth) {
    SaveCost cost;
    EXPECT_EQ(cost.spread(1, 0), 1) << "no step is known";
    cost = after_first_steps();
    add_steps(cost, 40, 0.100, false);
    EXPECT_EQ(cost.spread(0, 0), 1);
    EXPECT_EQ(cost.spread(0.1, 0), 50);
    EXPECT_EQ(cost.spread(0.1, 60), 30) << "it is done before the next one";
    EXPECT_EQ(cost.spread(0.1, 1), 1);
    add_steps(cost, 20, 0.110, true);
    cost.add_save(0, 0.04);
    add_steps(cost, 16, 0.100, false);
    EXPECT_NEAR(static_cast<double>(cost.spread(5, 0)), 100, 1) << "0.2 s, as shown";
    SaveCost hidden = after_first_steps();
    add_steps(hidden, 20, 0.100, false);
    add_steps(hidden, 20, 0.099, true);
    hidden.add_save(0, 0.04);
    add_steps(hidden, 16, 0.100, false);
    EXPECT_EQ(hidden.spread(5, 0), 1);
}

TEST(TimeLimit, KeepsNinetySecondsOfADeadlineOrATenthOfAShortJob) {
    TimeLimit none(0, unix_now_s, begin_s);
    none.note_save(1e9);
    EXPECT_FALSE(none.is_near(1e12)) << "there is no deadline";
    const TimeLimit limit(deadline, unix_now_s, begin_s);
    EXPECT_FALSE(limit.is_near(begin_s + 909));
    EXPECT_TRUE(limit.is_near(begin_s + 910));
    const TimeLimit short_job(1'700'000'060, unix_now_s, begin_s);
    EXPECT_FALSE(short_job.is_near(begin_s + 53));
    EXPECT_TRUE(short_job.is_near(begin_s + 54));
    EXPECT_TRUE(TimeLimit(1'600'000'000, unix_now_s, begin_s).is_near(begin_s)) << "it is over";
}

TEST(TimeLimit, KeepsTwoTurnsAndTwoSavesAndForgetsTurnsOfLongAgo) {
    TimeLimit limit(deadline, unix_now_s, begin_s);
    limit.begin_turn(begin_s);
    limit.begin_turn(begin_s + 10);
    limit.begin_turn(begin_s + 13);
    limit.note_save(30);
    limit.note_save(20);
    EXPECT_FALSE(limit.is_near(begin_s + 1000 - 90 - 60 - 20 - 1));
    EXPECT_TRUE(limit.is_near(begin_s + 1000 - 90 - 60 - 20));
    TimeLimit later(deadline, unix_now_s, begin_s);
    double now_s = begin_s;
    later.begin_turn(now_s);
    later.begin_turn(now_s += 100);
    EXPECT_TRUE(later.is_near(begin_s + 750));
    for (int turn = 0; turn < 64; ++turn) later.begin_turn(now_s += 1);
    EXPECT_FALSE(later.is_near(begin_s + 750));
}

}  // namespace
}  // namespace lockstep
