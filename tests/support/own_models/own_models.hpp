// SPDX-License-Identifier: Apache-2.0
// Models as users write them, in one plug-in; OWN_MODEL in the environment says which one it makes.
// Run by soak/own_models (those that behave) and e2e/own_models_test.cpp (those that do not).
#pragma once

#include "lockstep/train/model.hpp"

#include <map>
#include <memory>
#include <string>

#include <torch/autograd.h>
#include <torch/nn.h>

namespace lockstep::test {

using torch::Tensor;
namespace nn = torch::nn;

/// By name.
using OwnModels = std::map<std::string, std::shared_ptr<Classifier> (*)(const ModelShape&)>;

/// They have equal bits on any number of ranks: networks, for data of any kind;
OwnModels architectures();
/// and models whose weights or arithmetic are not usual.
OwnModels unusual_tensors();

/// Each has a mistake that users make.
OwnModels mistakes();

template <class Model>
std::shared_ptr<Classifier> made(const ModelShape& shape) {
    return std::make_shared<Model>(shape);
}

/// Of one sample.
inline std::int64_t numbers_of(const ModelShape& shape) {
    return shape.channels * shape.height * shape.width;
}

/// A linear layer on all numbers of a sample; each class makes something else of it.
struct OneLayer : Classifier {
    explicit OneLayer(const ModelShape& shape)
        : layer(register_module("layer", nn::Linear(numbers_of(shape), shape.classes))) {}
    Tensor forward(const Tensor& input) override { return logits(input); }
    Tensor logits(const Tensor& input) { return layer(input.flatten(1)); }
    nn::Linear layer;
};

/// The same behind a layer of 32 features.
struct TwoLayers : Classifier {
    explicit TwoLayers(const ModelShape& shape) : TwoLayers(numbers_of(shape), 32, shape.classes) {}
    TwoLayers(std::int64_t inputs, std::int64_t hidden, std::int64_t outputs)
        : first(register_module("first", nn::Linear(inputs, hidden))),
          last(register_module("last", nn::Linear(hidden, outputs))) {}
    Tensor forward(const Tensor& input) override { return last(features(input)); }
    Tensor features(const Tensor& input) { return torch::relu(first(input.flatten(1))); }
    nn::Linear first, last;
};

}  // namespace lockstep::test
