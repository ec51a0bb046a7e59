// SPDX-License-Identifier: Apache-2.0
#include "task/task.hpp"

#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/types.h>

namespace lockstep {
namespace {

std::unique_ptr<Task> three_classes() {
    Field labels;
    labels.class_counts = {1, 1, 1};
    return make_classification(labels);
}

NamedTensors some_outputs() {
    return {{"output", torch::tensor({{4.F, 1.F, 1.F}, {0.F, 3.F, 1.F}, {2.F, 1.F, 0.F}})}};
}

LeafSamples labelled(const std::vector<std::int64_t>& labels) {
    return {.inputs = {}, .targets = {{"labels", torch::tensor(labels)}}, .weights = {}};
}

TEST(Classification, SumsItsLossOverSamples) {
    const auto task = three_classes();
    const NamedTensors outputs = some_outputs();
    const LeafSamples samples = labelled({0, 1, 2});
    float parts = 0;
    for (std::int64_t i = 0; i < 3; ++i)
        parts += task->loss({{"output", only(outputs).narrow(0, i, 1)}}, samples.part(i, 1))
                     .item<float>();
    EXPECT_NEAR(task->loss(outputs, samples).item<float>(), parts, 1e-5);
}

TEST(Classification, TakesAMixedSampleForBothOfItsLabels) {
    const auto task = three_classes();
    const NamedTensors outputs = some_outputs();
    LeafSamples mixed = labelled({0, 1, 2});
    mixed.targets.push_back({"partners", torch::tensor(std::vector<std::int64_t>{1, 2, 0})});
    mixed.targets.push_back({"share", torch::full({3}, 0.25F)});
    const float own = task->loss(outputs, labelled({0, 1, 2})).item<float>();
    const float partners = task->loss(outputs, labelled({1, 2, 0})).item<float>();
    EXPECT_NEAR(task->loss(outputs, mixed).item<float>(), 0.25 * own + 0.75 * partners, 1e-5);
}

TEST(Classification, LeavesMaskedSamplesOut) {
    const auto task = three_classes();
    const NamedTensors outputs = some_outputs();
    LeafSamples masked = labelled({0, 1, 2});
    masked.weights = torch::tensor({1.F, 0.F, 1.F});
    const float first =
        task->loss({{"output", only(outputs).narrow(0, 0, 1)}}, labelled({0})).item<float>();
    const float last =
        task->loss({{"output", only(outputs).narrow(0, 2, 1)}}, labelled({2})).item<float>();
    EXPECT_NEAR(task->loss(outputs, masked).item<float>(), first + last, 1e-5);
    EXPECT_EQ(task->sums(outputs, masked).counts[0], 1);
}

TEST(Classification, EndsWithMeanLossAndAccuracy) {
    const auto task = three_classes();
    const Evaluation found = task->evaluation({.reals = {5}, .counts = {2'500}}, 10'000);
    EXPECT_EQ(found.loss, 5e-4);
    ASSERT_EQ(found.metrics.size(), 1U);
    EXPECT_EQ(found.metrics[0].name, "accuracy");
    EXPECT_EQ(found.metrics[0].value, 0.25);
    EXPECT_EQ(found.text, "accuracy 25.00 % (2,500 of 10,000)");
}

TEST(Classification, MakesBlankTargetsOfEveryClass) {
    const at::Tensor labels = three_classes()->blank_targets(4)[0].tensor;
    EXPECT_TRUE(labels.equal(torch::tensor(std::vector<std::int64_t>{0, 1, 2, 0})));
}

}  // namespace
}  // namespace lockstep
