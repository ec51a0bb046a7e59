// SPDX-License-Identifier: Apache-2.0
#include "lockstep/plan/run_length.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

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

TEST(DefaultVirtualRanks, LeaveEightSamplesToALeaf) {
    EXPECT_EQ(chosen(4096), 64);
    EXPECT_EQ(chosen(512), 64);
    EXPECT_EQ(chosen(128), 16);
    EXPECT_EQ(chosen(120), 8);
    EXPECT_EQ(chosen(15), 1);
    EXPECT_EQ(chosen(512, small, 1, 40), 4);
}

TEST(DefaultVirtualRanks, DoNotDependOnFewerRanksOrOnTheRunsLength) {
    for (int ranks = 1; ranks <= 16; ++ranks) EXPECT_EQ(chosen(128, small, ranks), 16);
    TrainSettings settings;
    settings.max_steps = 1;
    EXPECT_EQ(default_virtual_ranks(settings, 1285, with_norm, 1), 2);
}

TEST(DefaultVirtualRanks, AreAsManyAsRanksNeed) {
    EXPECT_EQ(chosen(128, small, 17), 32);
    EXPECT_EQ(chosen(128, small, 32), 32);
    EXPECT_EQ(chosen(128, small, 128), 128);
}

TEST(DefaultVirtualRanks, LeaveThirtyTwoSamplesToBatchStatistics) {
    EXPECT_EQ(chosen(128, with_norm), 4);
    // An epoch's last step has 5 samples: of four leaves three would have a single one.
    EXPECT_EQ(chosen(128, with_norm, 1, 1285), 2);
}

TEST(DefaultVirtualRanks, HoldNoMoreThanAGigabyteOfGradients) {
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
    TrainSettings settings;
    settings.micro_batches = 2;
    EXPECT_EQ(default_virtual_ranks(settings, 60'000, small, 2), 2);
    settings = {};
    settings.precision = Precision::bf16;
    EXPECT_EQ(default_virtual_ranks(settings, 60'000, small, 2), 2);
    settings = {};
    settings.plain_summation = true;
    EXPECT_EQ(default_virtual_ranks(settings, 60'000, small, 2), 2);
}

}  // namespace
}  // namespace lockstep
