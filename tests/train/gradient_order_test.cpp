// SPDX-License-Identifier: Apache-2.0
#include "gradient_order.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

namespace lockstep {
namespace {

/// Registered as first, unused, norm, second; used as second(norm(first(x))).
struct Crossed : Classifier {
    torch::nn::Linear first = register_module("first", torch::nn::Linear(4, 4));
    torch::nn::Linear unused = register_module("unused", torch::nn::Linear(1, 1));
    torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(4));
    torch::nn::Linear second =
        register_module("second", torch::nn::Linear(torch::nn::LinearOptions(4, 3).bias(false)));

    torch::Tensor forward(const torch::Tensor& images) override {
        return second(norm(first(images.flatten(1))));
    }
};

TEST(GradientOrder, IsTheReverseOfUseWithUnreachedParametersLast) {
    Crossed model;
    const auto order = observe_gradient_order(model, {1, 2, 2, 3});
    ASSERT_EQ(order.size(), 7U);
    EXPECT_EQ(order[0], 6U);  // second.weight
    EXPECT_THAT(std::vector(order.begin() + 1, order.begin() + 3),
                testing::UnorderedElementsAre(4U, 5U));  // norm
    EXPECT_THAT(std::vector(order.begin() + 3, order.begin() + 5),
                testing::UnorderedElementsAre(0U, 1U));  // first
    EXPECT_THAT(std::vector(order.begin() + 5, order.end()), testing::ElementsAre(2U, 3U));
}

TEST(GradientOrder, LeavesNothingBehind) {
    Crossed model;
    observe_gradient_order(model, {1, 2, 2, 3});
    for (const at::Tensor& parameter : model.parameters()) EXPECT_FALSE(parameter.grad().defined());
    EXPECT_TRUE(model.norm->running_var.equal(torch::ones({4})));
    EXPECT_EQ(model.norm->num_batches_tracked.item<std::int64_t>(), 0);
}

}  // namespace
}  // namespace lockstep
