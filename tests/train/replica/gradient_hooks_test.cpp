// SPDX-License-Identifier: Apache-2.0
#include "replica/gradient_hooks.hpp"

#include <gtest/gtest.h>
#include <torch/types.h>

namespace lockstep {
namespace {

TEST(OnGradient, FiresOnceAfterAllUsesAndErrorsReachTheCallerOfBackward) {
    auto weight = torch::ones({2}, torch::requires_grad());
    int fired = 0;
    float seen = 0;
    on_gradient(weight, [&](const at::Tensor& parameter) {
        ++fired;
        seen = parameter.grad()[0].item<float>();
    });
    (weight * 2 + weight * 3).sum().backward();
    EXPECT_EQ(fired, 1);
    EXPECT_EQ(seen, 5);
    auto other = torch::ones({2}, torch::requires_grad());
    on_gradient(other, [](const at::Tensor&) { throw std::runtime_error("from the hook"); });
    EXPECT_THROW(other.sum().backward(), std::runtime_error);
}

}  // namespace
}  // namespace lockstep
