// SPDX-License-Identifier: Apache-2.0
#include "schedule/blank_step.hpp"

#include <gmock/gmock.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

namespace lockstep {
namespace {

/// Registered as first, unused, norm, second; used as second(norm(first(x))).
struct Crossed : Classifier {
    torch::nn::Linear first = register_module("first", torch::nn::Linear(4, 4));
    torch::nn::Linear unused = register_module("unused", torch::nn::Linear(1, 1));
    torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(4));
    torch::nn::Dropout drop = register_module("drop", torch::nn::Dropout(0.5));
    torch::nn::Linear second =
        register_module("second", torch::nn::Linear(torch::nn::LinearOptions(4, 3).bias(false)));

    torch::Tensor forward(const torch::Tensor& images) override {
        return second(drop(norm(first(images.flatten(1)))));
    }
};

std::unique_ptr<Task> three_classes() {
    return make_classification({}, {.class_counts = {1, 1, 1}});
}

BlankStep blank_step_of(const std::shared_ptr<Crossed>& model,
                        std::int64_t rows = 5,
                        const OptimizerSettings& optimizer = {}) {
    return run_blank_step(
        *model_of(model), *three_classes(), {1, 2, 2, 3}, rows, *make_optimizer(optimizer));
}

TEST(BlankStep, OrderIsTheReverseOfUseWithUnreachedParametersLast) {
    const auto model = std::make_shared<Crossed>();
    const auto order = blank_step_of(model).order;
    ASSERT_EQ(order.size(), 7U);
    EXPECT_EQ(order[0], 6U);  // second.weight
    EXPECT_THAT(std::vector(order.begin() + 1, order.begin() + 3),
                testing::UnorderedElementsAre(4U, 5U));  // norm
    EXPECT_THAT(std::vector(order.begin() + 3, order.begin() + 5),
                testing::UnorderedElementsAre(0U, 1U));  // first
    EXPECT_THAT(std::vector(order.begin() + 5, order.end()), testing::ElementsAre(2U, 3U));
}

TEST(BlankStep, LeavesNothingBehind) {
    const auto model = std::make_shared<Crossed>();
    const at::Tensor weights = model->first->weight.detach().clone();
    blank_step_of(model);
    for (const at::Tensor& parameter : model->parameters())
        EXPECT_FALSE(parameter.grad().defined());
    EXPECT_TRUE(model->first->weight.equal(weights));
    EXPECT_TRUE(model->norm->running_var.equal(torch::ones({4})));
    EXPECT_EQ(model->norm->num_batches_tracked.item<std::int64_t>(), 0);
}

TEST(BlankStep, HashIsThatOfEverythingComputed) {
    const auto model = std::make_shared<Crossed>();
    const std::string hash = blank_step_of(model).hash;
    torch::rand({1});  // dropout does not depend on what came before
    EXPECT_EQ(blank_step_of(model).hash, hash);
    EXPECT_NE(blank_step_of(model, 6).hash, hash);
    EXPECT_NE(blank_step_of(model, 5, {.kind = OptimizerKind::sgd}).hash, hash);
    float& weight = model->first->weight.data_ptr<float>()[3];
    weight = std::nextafter(weight, 2.0F);
    EXPECT_NE(blank_step_of(model).hash, hash);
}

struct Counted : Crossed {
    int passes = 0;

    torch::Tensor forward(const torch::Tensor& images) override {
        ++passes;
        return Crossed::forward(images);
    }
};

TEST(BlankStepSeconds, StopAfterOnePassThatTookLong) {
    const auto passes_within = [&](double enough_s) {
        const auto model = std::make_shared<Counted>();
        EXPECT_GT(blank_step_seconds(*model_of(model), *three_classes(), {1, 2, 2, 3}, 5, enough_s),
                  0);
        return model->passes;
    };
    EXPECT_EQ(passes_within(0), 1);
    EXPECT_EQ(passes_within(1e9), 3);
}

TEST(TakesSingleRows, TellsNormsOfOneValueFromThoseOfAMap) {
    const auto crossed = model_of(std::make_shared<Crossed>());
    EXPECT_FALSE(takes_single_rows(*crossed, {1, 2, 2, 3}));
    for (const NamedTensor& buffer : crossed->buffers())
        EXPECT_EQ(buffer.tensor.sum().item<float>(), buffer.name == "norm.running_var" ? 4 : 0);
    const ModelShape image{1, 28, 28, 10};
    EXPECT_TRUE(takes_single_rows(*model_of(make_model({"cnn-bn"}, image, 1)), image));
    EXPECT_FALSE(takes_single_rows(*model_of(make_model({"resnet18"}, image, 1)), image));
    const ModelShape larger{1, 64, 64, 10};
    EXPECT_TRUE(takes_single_rows(*model_of(make_model({"resnet18"}, larger, 1)), larger));
}

}  // namespace
}  // namespace lockstep
