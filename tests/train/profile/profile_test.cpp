// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/profile.hpp"

#include "profile/operator_ledger.hpp"
#include "support/unit.hpp"

#include <algorithm>
#include <functional>

#include <torch/nn.h>
#include <torch/torch.h>

namespace lockstep {
namespace {

const OperatorCost& cost_of(const std::vector<OperatorCost>& costs,
                            StepPass pass,
                            const std::string& name) {
    static const OperatorCost none;
    const auto found = std::ranges::find_if(
        costs, [&](const OperatorCost& cost) { return cost.pass == pass && cost.name == name; });
    EXPECT_NE(found, costs.end()) << name;
    return found == costs.end() ? none : *found;
}

class OperatorLedgerTest : public testing::Test {
  protected:
    void watch_step(const at::Tensor& images) {
        const OperatorWatch watch(ledger_);
        ledger_->begin_step();
        const at::Tensor output = only(model_->forward({{"images", images}}));
        ledger_->begin_backward();
        output.backward(torch::ones_like(output));
    }
    // FLOPs of one call, forward and backward alike.
    std::uint64_t flops(StepPass pass,
                        const std::string& name,
                        const std::function<at::Tensor()>& call) {
        const auto ledger = std::make_shared<OperatorLedger>(*model_);
        const OperatorWatch watch(ledger);
        ledger->begin_step();
        const at::Tensor output = call();
        ledger->begin_backward();
        if (pass == StepPass::backward) output.backward(torch::ones_like(output));
        return cost_of(ledger->operators(1), pass, name).flops.value_or(0);
    }

    std::unique_ptr<Model> model_ = model_of(make_model({.name = "mlp"}, {}, 1));
    std::shared_ptr<OperatorLedger> ledger_ = std::make_shared<OperatorLedger>(*model_);
};

TEST_F(OperatorLedgerTest, CountsAStep) {
    const at::Tensor images = torch::ones({8, 1, 28, 28});
    torch::mm(torch::ones({2, 2}), torch::ones({2, 2}));
    for (int step = 0; step < 2; ++step) watch_step(images);
    torch::mm(torch::ones({2, 2}), torch::ones({2, 2}));
    const auto costs = ledger_->operators(2);
    const OperatorCost& forward = cost_of(costs, StepPass::forward, "aten::addmm");
    const std::uint64_t first = 2 * 8 * 784 * 256, second = 2 * 8 * 256 * 10;
    EXPECT_EQ(forward.calls, 2);
    EXPECT_EQ(forward.flops, first + second);
    EXPECT_EQ(cost_of(costs, StepPass::backward, "aten::mm").flops, first + 2 * second);
    EXPECT_EQ(cost_of(costs, StepPass::forward, "aten::relu").flops, std::nullopt);
    EXPECT_TRUE(std::ranges::is_sorted(costs, std::ranges::greater(), &OperatorCost::self_s));
    for (const OperatorCost& cost : costs) EXPECT_GE(cost.self_s, 0) << cost.name;
}

// What relu gives is kept, and not what it is given.
TEST_F(OperatorLedgerTest, KnowsLayersAndWhatTheyKeep) {
    watch_step(torch::ones({8, 1, 28, 28}));
    const auto layers = ledger_->layers(1);
    ASSERT_EQ(layers.size(), 2U);
    double watched_s = 0;
    for (const OperatorCost& cost : ledger_->operators(1)) watched_s += cost.self_s;
    EXPECT_NEAR(
        layers[0].forward_s + layers[0].backward_s + layers[1].forward_s + layers[1].backward_s,
        watched_s,
        1e-9);
    for (const LayerCost& layer : layers) EXPECT_GT(layer.backward_s, 0) << layer.name;
    EXPECT_EQ(layers[0].name, "fc1");
    EXPECT_EQ(layers[0].parameters, 785 * 256);
    EXPECT_THAT(layers[0].output, ElementsAre(8, 256));
    EXPECT_EQ(layers[0].activation_bytes, 8U * 256 * 4);
    EXPECT_THAT(layers[1].output, ElementsAre(8, 10));
    EXPECT_EQ(layers[1].activation_bytes, 8U * 10 * 4);
    EXPECT_GT(ledger_->peak_bytes(), 785U * 256 * 4) << "gradients are as large as parameters";
}

TEST_F(OperatorLedgerTest, KnowsLayersWhoseWeightIsTransposedFirst) {
    const auto gpt = model_of(
        make_model({.name = "gpt", .layers = 1, .heads = 2, .width = 8}, {1, 1, 4, 16, 16}, 1));
    const auto ledger = std::make_shared<OperatorLedger>(*gpt);
    const OperatorWatch watch(ledger);
    gpt->set_mode(ModelMode::evaluate);  // dropout has another kernel
    ledger->begin_step();
    const at::Tensor tokens = torch::zeros({2, 4}, torch::kInt64);
    const at::Tensor output = only(gpt->forward({{"tokens", tokens}}));
    ledger->begin_backward();
    output.backward(torch::ones_like(output));
    for (const LayerCost& layer : ledger->layers(1)) {
        if (layer.name == "h.0.attn.c_attn") {
            EXPECT_THAT(layer.output, ElementsAre(2, 4, 24));
        }
        EXPECT_FALSE(layer.output.empty()) << layer.name;
    }
    const auto costs = ledger->operators(1);
    const std::string attention = "aten::_scaled_dot_product_flash_attention_for_cpu";
    const std::uint64_t product = 2 * (2 * 2 * 4 * 4) * 4;
    EXPECT_EQ(cost_of(costs, StepPass::forward, attention).flops, 2 * product);
    EXPECT_EQ(cost_of(costs, StepPass::backward, attention + "_backward").flops, 5 * product);
}

// As programs do for each module of the Python class, whether it has parameters or not.
TEST_F(OperatorLedgerTest, CountsScopesAsLayersInBothPasses) {
    const at::Tensor w = torch::ones({64, 64}, torch::requires_grad());
    const OperatorWatch watch(ledger_);
    ledger_->begin_step();
    const auto in = [](const std::string& module, auto&& work) {
        RECORD_USER_SCOPE(module);
        return work();
    };
    const at::Tensor product = in("body.0", [&] { return torch::mm(w, w); });
    const at::Tensor output = in("body.act", [&] { return torch::relu(product); });
    ledger_->begin_backward();
    output.backward(torch::ones_like(output));
    const auto layers = ledger_->layers(1);
    ASSERT_EQ(layers.size(), 4U);
    EXPECT_EQ(layers[0].name, "body.0");
    EXPECT_EQ(layers[1].name, "body.act");
    EXPECT_THAT(layers[1].output, ElementsAre(64, 64));
    for (std::size_t i = 0; i < 4; ++i) {
        EXPECT_EQ(layers[i].forward_s > 0, i < 2) << layers[i].name;
        EXPECT_EQ(layers[i].backward_s > 0, i < 2) << layers[i].name;
    }
}

TEST_F(OperatorLedgerTest, KnowsWhatConvolutionsTake) {
    namespace fn = torch::nn::functional;
    const at::Tensor x = torch::ones({2, 4, 9, 7}, torch::requires_grad());
    const at::Tensor w = torch::ones({6, 2, 3, 3}, torch::requires_grad());
    const auto strided = [&] {
        return fn::conv2d(x, w, fn::Conv2dFuncOptions().stride({2, 1}).padding(1).groups(2));
    };
    const std::uint64_t products = 2 * (2 * 6 * 5 * 7) * (2 * 3 * 3);
    EXPECT_EQ(flops(StepPass::forward, "aten::convolution", strided), products);
    EXPECT_EQ(flops(StepPass::backward, "aten::convolution_backward", strided), 2 * products);
    const auto dilated = [&] {
        return fn::conv2d(x.detach(), w, fn::Conv2dFuncOptions().dilation(2).groups(2));
    };
    const std::uint64_t fewer = 2 * (2 * 6 * 5 * 3) * (2 * 3 * 3);
    EXPECT_EQ(flops(StepPass::forward, "aten::convolution", dilated), fewer);
    EXPECT_EQ(flops(StepPass::backward, "aten::convolution_backward", dilated), fewer);
    const at::Tensor up = torch::ones({4, 3, 2, 2}, torch::requires_grad());
    const auto transposed = [&] {
        return fn::conv_transpose2d(x, up, fn::ConvTranspose2dFuncOptions().stride(2));
    };
    EXPECT_EQ(flops(StepPass::forward, "aten::convolution", transposed),
              2U * (2 * 4 * 9 * 7) * (3 * 2 * 2));
}

}  // namespace
}  // namespace lockstep
