// SPDX-License-Identifier: Apache-2.0
// Our optimizers beside LibTorch's: the same weights, within rounding, after 200 steps.
#include "replica/optimizer.hpp"

#include <functional>
#include <memory>
#include <string>

#include <gtest/gtest.h>
#include <torch/optim.h>
#include <torch/types.h>
#include <torch/utils.h>

namespace lockstep {
namespace {

constexpr double rate = 1e-3;

/// How one of ours and one of theirs are made.
struct OptimizerPair {
    std::string name;
    OptimizerSettings ours;
    std::function<std::unique_ptr<torch::optim::Optimizer>(const std::vector<at::Tensor>&)> theirs;
};

template <class Theirs, class Options>
auto maker(Options options) {
    return [options](const std::vector<at::Tensor>& tensors) {
        return std::make_unique<Theirs>(tensors, options);
    };
}

OptimizerPair sgd(const std::string& name, double momentum, bool nesterov, double decay) {
    return {name,
            {.kind = OptimizerKind::sgd,
             .momentum = momentum,
             .nesterov = nesterov,
             .weight_decay = decay},
            maker<torch::optim::SGD>(
                torch::optim::SGDOptions(rate).momentum(momentum).nesterov(nesterov).weight_decay(
                    decay))};
}

OptimizerPair adam(const std::string& name, double decay) {
    return {name,
            {.kind = OptimizerKind::adam, .weight_decay = decay},
            maker<torch::optim::Adam>(torch::optim::AdamOptions(rate).weight_decay(decay))};
}

// Theirs decays whatever it is given.
OptimizerPair adamw(const std::string& name, double decay) {
    return {name,
            {.kind = OptimizerKind::adamw, .weight_decay = decay, .decays_all = true},
            maker<torch::optim::AdamW>(torch::optim::AdamWOptions(rate).weight_decay(decay))};
}

std::vector<OptimizerPair> pairs() {
    return {sgd("Sgd", 0, false, 0),
            sgd("SgdWithMomentum", 0.9, false, 0),
            sgd("SgdWithWeightDecay", 0.9, false, 0.1),
            sgd("Nesterov", 0.9, true, 0),
            sgd("NesterovWithWeightDecay", 0.9, true, 0.1),
            adam("Adam", 0),
            adam("AdamWithWeightDecay", 0.1),
            adamw("AdamW", 0),
            adamw("AdamWWithWeightDecay", 0.1)};
}

class BesideTorch : public testing::TestWithParam<OptimizerPair> {};

TEST_P(BesideTorch, GivesTheSameWeights) {
    torch::manual_seed(1);
    std::vector<at::Tensor> theirs = {torch::rand({30, 7}) - 0.5, torch::rand({30}) - 0.5};
    std::vector<at::Tensor> ours = {theirs[0].clone(), theirs[1].clone()}, state;
    for (at::Tensor& tensor : theirs) tensor.requires_grad_();
    const OptimizerSettings optimizer = GetParam().ours;
    const auto peer = GetParam().theirs(theirs);
    std::vector<ParameterPiece> pieces;
    for (std::size_t i = 0; i < 2; ++i) {
        pieces.push_back({.tensor = i,
                          .dimensions = static_cast<std::size_t>(ours[i].dim()),
                          .count = static_cast<std::size_t>(ours[i].numel()),
                          .values = ours[i].data_ptr<float>(),
                          .state = {}});
        for (std::size_t k = 0; k < state_names(optimizer).size(); ++k)
            pieces[i].state.push_back(
                state.emplace_back(torch::zeros_like(ours[i])).data_ptr<float>());
    }
    for (std::int64_t step = 1; step <= 200; ++step) {
        for (std::size_t i = 0; i < 2; ++i) {
            theirs[i].mutable_grad() = torch::randn_like(ours[i]) + theirs[i].detach();
            pieces[i].gradients = theirs[i].grad().const_data_ptr<float>();
        }
        update_pieces(optimizer, {}, pieces, ParameterCopy::first, 2, {step, rate});
        peer->step();
    }
    for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_LT((ours[i] - theirs[i]).abs().max().item<double>(), 1e-6);
        EXPECT_GT((ours[i] - theirs[i].grad()).abs().max().item<double>(), 1e-2);
    }
}

std::string pair_name(const testing::TestParamInfo<OptimizerPair>& info) {
    return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(, BesideTorch, testing::ValuesIn(pairs()), pair_name);

}  // namespace
}  // namespace lockstep
