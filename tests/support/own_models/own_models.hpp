// SPDX-License-Identifier: Apache-2.0
// Models as users write them, in one plug-in; OWN_MODEL in the environment says which one it makes.
// Run by soak/own_models (those that behave) and e2e/own_models_test.cpp (those that do not).
#pragma once

#include "lockstep/train/model.hpp"

#include <functional>
#include <map>
#include <memory>
#include <string>

#include <torch/autograd.h>
#include <torch/nn.h>

namespace lockstep::test {

using torch::Tensor;
namespace nn = torch::nn;

/// By name.
using OwnModels = std::map<std::string, std::function<std::shared_ptr<Classifier>(ModelShape)>>;

/// They have equal bits on any number of ranks: networks, for data of any kind;
OwnModels architectures();
/// and models whose weights or arithmetic are not usual.
OwnModels unusual_tensors();

template <class Model>
std::shared_ptr<Classifier> made(const ModelShape& shape) {
    return std::make_shared<Model>(shape);
}

/// The same, and then changed.
template <class Model, class Change>
auto changed(const Change& change) {
    return [change](const ModelShape& shape) {
        auto model = std::make_shared<Model>(shape);
        change(*model);
        return model;
    };
}

/// Its layers are made where they are declared.
struct Own : Classifier {
    explicit Own(const ModelShape& of) : shape(of) {}
    /// Of one sample.
    std::int64_t numbers() const { return shape.channels * shape.height * shape.width; }
    ModelShape shape;
};

/// A linear layer on all numbers of a sample; each model makes something else of it.
struct OneLayer : Own {
    using Own::Own;
    Tensor forward(const Tensor& input) override {
        return output ? output(*this, input) : logits(input);
    }
    Tensor logits(const Tensor& input) { return layer(input.flatten(1)); }
    nn::Linear layer = register_module("layer", nn::Linear(numbers(), shape.classes));
    std::function<Tensor(OneLayer&, const Tensor& input)> output;
};

template <class Output>
auto one_layer(const Output& of) {
    return changed<OneLayer>([of](OneLayer& model) { model.output = of; });
}

/// The same behind a layer of 32 features.
struct TwoLayers : Own {
    using Own::Own;
    Tensor forward(const Tensor& input) override { return last(features(input)); }
    Tensor features(const Tensor& input) { return torch::relu(first(input.flatten(1))); }
    nn::Linear first = register_module("first", nn::Linear(numbers(), 32));
    nn::Linear last = register_module("last", nn::Linear(32, shape.classes));
};

}  // namespace lockstep::test
