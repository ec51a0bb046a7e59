// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/model.hpp"

#include "model/model.hpp"

#include <ATen/Functions.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

namespace lockstep {
namespace {

std::unique_ptr<Model> cnn_in(Precision precision, ReducedOutputs outputs = ReducedOutputs::fp32) {
    auto model = model_of(make_model({.name = "cnn"}, {1, 28, 28, 10}, 1));
    return with_precision(std::move(model), precision, outputs);
}

NamedTensors images() {
    torch::manual_seed(7);
    return {{"images", torch::rand({4, 1, 28, 28})}};
}

class Reduced : public testing::TestWithParam<Precision> {};
INSTANTIATE_TEST_SUITE_P(Precisions,
                         Reduced,
                         testing::Values(Precision::bf16, Precision::fp16),
                         [](const auto& one) {
                             return one.param == Precision::bf16 ? "bf16" : "fp16";
                         });

TEST_P(Reduced, OutputsAreNearThoseOfFp32AndOfItsType) {
    const at::Tensor full = only(cnn_in(Precision::fp32)->forward(images()));
    const at::Tensor reduced = only(cnn_in(GetParam())->forward(images()));
    EXPECT_EQ(reduced.scalar_type(), at::kFloat);
    EXPECT_FALSE(reduced.equal(full));
    EXPECT_TRUE(reduced.allclose(full, 0.05, 0.02));
    EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
}

TEST_P(Reduced, OutputsStayIn16BitsWhereTheyAreLearnedFrom) {
    const auto copies = cnn_in(GetParam());
    const auto model = cnn_in(GetParam(), ReducedOutputs::as_is_to_learn);
    const at::Tensor learned = only(model->forward(images()));
    EXPECT_EQ(learned.scalar_type(), GetParam() == Precision::bf16 ? at::kBFloat16 : at::kHalf);
    EXPECT_TRUE(learned.to(at::kFloat).equal(only(copies->forward(images()))));
    const torch::NoGradGuard no_gradients;
    EXPECT_EQ(only(model->forward(images())).scalar_type(), at::kFloat);
}

TEST_P(Reduced, GradientsAreFp32OfEveryParameter) {
    const auto model = cnn_in(GetParam());
    only(model->forward(images())).sum().backward();
    for (const auto& [name, parameter] : model->parameters()) {
        ASSERT_TRUE(parameter.grad().defined()) << name;
        EXPECT_EQ(parameter.grad().scalar_type(), at::kFloat) << name;
    }
}

// Casts of weights are kept within a pass; after it the weights may have changed where they lie.
TEST_P(Reduced, EachPassSeesTheWeightsOfItsTime) {
    const auto model = cnn_in(GetParam());
    model->forward(images());
    {
        const torch::NoGradGuard no_gradients;
        for (const auto& [name, parameter] : model->parameters()) parameter.mul_(0);
    }
    EXPECT_TRUE(only(model->forward(images())).equal(torch::zeros({4, 10})));
}

TEST(SlowerText, LeavesNoiseOut) {
    EXPECT_EQ(
        slower_text("bf16", 2e-3, 3e-3),
        "--precision bf16 is 1.5 times as slow as fp32 here: 3 ms a micro-batch against 2 ms");
    EXPECT_EQ(slower_text("bf16", 2e-3, 2.1e-3), "");
    EXPECT_EQ(slower_text("bf16", 2e-3, 1e-3), "");
}

}  // namespace
}  // namespace lockstep
