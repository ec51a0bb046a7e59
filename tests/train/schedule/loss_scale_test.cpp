// SPDX-License-Identifier: Apache-2.0
#include "lockstep/plan/losses.hpp"

#include <vector>

#include <ATen/Functions.h>
#include <ATen/ops/_amp_update_scale.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

// What torch.amp.GradScaler is made of, with its own constants.
class TorchScale {
  public:
    explicit TorchScale(double first) : factor_(torch_float(first)) {}

    LossScale next(bool overflowed) {
        at::_amp_update_scale_(
            factor_, good_steps_, torch_float(overflowed ? 1 : 0), 2.0, 0.5, 2000);
        return {factor_.item<float>(), good_steps_.item<int>()};
    }

  private:
    static at::Tensor torch_float(double value) { return at::full({1}, value, at::kFloat); }
    at::Tensor factor_, good_steps_ = at::zeros({1}, at::kInt);
};

// Overflows in a row, alone, just before and just after the factor would have grown.
std::vector<bool> scripted_overflows() {
    std::vector<bool> steps(12'000, false);
    for (const std::size_t step : {0, 1, 2, 500, 2499, 4500, 6501, 6502, 11'999})
        steps[step] = true;
    return steps;
}

TEST(LossScale, FollowsThatOfTorch) {
    for (const double first : {1.0, 65536.0, 0x1p127}) {
        TorchScale torch(first);
        LossScale ours{first, 0};
        int grown = 0;
        for (const bool overflowed : scripted_overflows()) {
            const double before = ours.factor;
            ours = next_scale(ours, overflowed);
            grown += ours.factor > before ? 1 : 0;
            ASSERT_EQ(ours, torch.next(overflowed));
        }
        EXPECT_GE(grown, 3);
    }
}

TEST(LossScale, IsSpentAfterManyOverflowsMoreThanGoodSteps) {
    LossScale scale{65536, 0};
    int overflows = 0;
    for (; !is_spent(scale); ++overflows) scale = next_scale(next_scale(scale, false), true);
    EXPECT_EQ(overflows, 31);
}

}  // namespace
}  // namespace lockstep
