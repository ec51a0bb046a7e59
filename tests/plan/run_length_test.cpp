// SPDX-License-Identifier: Apache-2.0
#include "lockstep/plan/run_length.hpp"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using testing::HasSubstr;

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

TEST(SingleRows, AreThoseOfLeavesOfTheLastStep) {
    const TrainSettings settings = settings_of(16, 4);
    EXPECT_EQ(reason(settings, 160), "");
    for (const std::int64_t rest : {1, 4, 5, 7})
        EXPECT_THAT(reason(settings, 160 + rest), HasSubstr("the last step of an epoch has"))
            << rest;
    for (const std::int64_t rest : {8, 9, 15}) EXPECT_EQ(reason(settings, 160 + rest), "") << rest;
}

TEST(SingleRows, AreNotThereWhereTheLastStepIsNot) {
    TrainSettings settings = settings_of(16, 4);
    settings.max_steps = 10;
    EXPECT_EQ(reason(settings, 161), "");
    settings.max_steps = 11;
    EXPECT_NE(reason(settings, 161), "");
    settings.drops_last = true;
    EXPECT_EQ(reason(settings, 161), "");
}

TEST(SingleRows, AreThoseOfEachStep) {
    EXPECT_THAT(reason(settings_of(4, 4), 160), HasSubstr("each step has 4 samples"));
    EXPECT_EQ(reason(settings_of(12, 4), 168), "");
    EXPECT_THAT(reason(settings_of(12, 4, 2), 168),
                HasSubstr("each step has 12 samples, for 4 virtual ranks in 2 micro-batches each"));
    EXPECT_EQ(reason(settings_of(16, 4, 2), 160), "");
}

}  // namespace
}  // namespace lockstep
