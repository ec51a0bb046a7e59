// SPDX-License-Identifier: Apache-2.0
// The plug-in, with the models of which each has a mistake that users make.
#include "lockstep/train/plugin.hpp"

#include "support/own_models/own_models.hpp"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <thread>

#include <ATen/CPUGeneratorImpl.h>

namespace lockstep::test {
namespace {

std::string variable(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
}

/// In the way that OWN_WAY names.
Tensor failed(const Tensor& output) {
    const std::string way = variable("OWN_WAY");
    if (way == "throw") throw std::runtime_error("after 40 calls");
    if (way == "exit") std::exit(0);
    if (way == "_exit") std::_Exit(0);
    if (way == "abort") std::abort();
    if (way == "segv") std::raise(SIGSEGV);
    if (way == "shape") return output.unsqueeze(2);
    return output * std::numeric_limits<float>::quiet_NaN();
}

struct ThrowingFunction : torch::autograd::Function<ThrowingFunction> {
    static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x) { return x.clone(); }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                   const torch::autograd::variable_list&) {
        throw std::runtime_error("no way back");
    }
};

struct ThrowsInTrain : OneLayer {
    using OneLayer::OneLayer;
    void train(bool) override { throw std::runtime_error("no modes here"); }
};

struct SparseGradients : Own {
    using Own::Own;
    Tensor forward(const Tensor& input) override {
        return last(words((input.flatten(1) * 8).to(torch::kLong).clamp(0, 63)).mean(1));
    }
    nn::Embedding words =
        register_module("words", nn::Embedding(nn::EmbeddingOptions(64, 8).sparse(true)));
    nn::Linear last = register_module("last", nn::Linear(8, shape.classes));
};

/// For --task program; the first call is that which names outputs.
struct OtherNames : OneLayer {
    using OneLayer::OneLayer;
    NamedTensors forward_named(const std::vector<Tensor>& inputs) override {
        NamedTensors outputs = {{"loss", logits(inputs.at(0)).squeeze(1).pow(2)}};
        if (!is_training() && ++tests > 1) outputs.push_back({"more", torch::ones({})});
        return outputs;
    }
    int tests = 0;
};

struct Thawing : TwoLayers {
    explicit Thawing(const ModelShape& shape) : TwoLayers(shape) {
        first->weight.set_requires_grad(false);
    }
    Tensor forward(const Tensor& input) override {
        if (++calls > 30) first->weight.set_requires_grad(true);
        return TwoLayers::forward(input);
    }
    int calls = 0;
};

OwnModels that_throw() {
    return {
        {"LoopsInConstructor",
         [](const ModelShape&) -> std::shared_ptr<Classifier> {
             while (true) std::this_thread::sleep_for(std::chrono::seconds(1));
         }},
        {"SleepsInEvaluation", one_layer([](OneLayer& of, const Tensor& input) {
             if (!of.is_training()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
             return of.logits(input);
         })},
        {"ThrowsInBackward", one_layer([](OneLayer& of, const Tensor& input) {
             return ThrowingFunction::apply(of.logits(input));
         })},
        {"ThrowsInConstructor", changed<OneLayer>([](const OneLayer& of) {
             TORCH_CHECK(of.shape.classes == 77, "I need 77 classes, not ", of.shape.classes);
         })},
        {"ThrowsInEvaluation", one_layer([](OneLayer& of, const Tensor& input) {
             if (!of.is_training()) throw std::runtime_error("nothing to test");
             return of.logits(input);
         })},
        {"ThrowsInForward", one_layer([](OneLayer&, const Tensor&) -> Tensor {
             throw std::runtime_error("first line\nsecond line");
         })},
        {"ThrowsInTrain", made<ThrowsInTrain>},
        {"ThrowsLater", one_layer([calls = 0](OneLayer& of, const Tensor& input) mutable {
             if (++calls > 40) throw std::runtime_error("after 40 calls\nand more");
             return of.logits(input);
         })},
        {"ThrowsNumber", one_layer([](OneLayer&, const Tensor&) -> Tensor { throw 42; })},
    };
}

OwnModels of_wrong_tensors() {
    return {
        {"AllFrozen", changed<OneLayer>([](OneLayer& of) {
             for (Tensor& parameter : of.parameters()) parameter.set_requires_grad(false);
         })},
        {"BoolBuffer", changed<OneLayer>([](OneLayer& of) {
             of.register_buffer("mask", torch::ones({4}, torch::kBool));
         })},
        {"Detached",
         one_layer([](OneLayer& of, const Tensor& input) { return of.logits(input).detach(); })},
        {"DoubleParameter", changed<OneLayer>([](OneLayer& of) {
             of.register_parameter("scale", torch::ones({1}, torch::kDouble));
         })},
        {"NoParameter", changed<OneLayer>([](OneLayer& of) {
             of.unregister_module("layer");
             of.output = [](OneLayer& it, const Tensor& input) {
                 return input.flatten(1).narrow(1, 0, it.shape.classes);
             };
         })},
        {"SparseGradients", made<SparseGradients>},
        {"Thawing", made<Thawing>},
        {"Tied", changed<TwoLayers>([](TwoLayers& of) {
             of.register_parameter("again", of.last->weight);
         })},
        {"WrongInput", changed<OneLayer>([](OneLayer& of) {
             of.layer = of.register_module("narrow", nn::Linear(3, of.shape.classes));
         })},
        {"WrongShape", one_layer([](OneLayer& of, const Tensor& input) {
             return of.logits(input).unsqueeze(2);
         })},
        {"WrongShapeInEvaluation", one_layer([](OneLayer& of, const Tensor& input) {
             return of.is_training() ? of.logits(input) : of.logits(input).unsqueeze(2);
         })},
        {"WrongShapeLater", one_layer([calls = 0](OneLayer& of, const Tensor& input) mutable {
             return ++calls > 40 ? of.logits(input).unsqueeze(2) : of.logits(input);
         })},
    };
}

/// What equal ranks do not compute alike, or not all of them.
OwnModels of_unequal_ranks() {
    return {
        {"Clock", one_layer([](OneLayer& of, const Tensor& input) {
             const auto ticks = std::chrono::steady_clock::now().time_since_epoch().count();
             return of.logits(input) * (1 + 1e-5 * static_cast<double>(ticks % 1009));
         })},
        {"Counting", one_layer([calls = 0](OneLayer& of, const Tensor& input) mutable {
             return of.logits(input) / (1 + ++calls % 5);
         })},
        {"FailsLater", one_layer([calls = 0](OneLayer& of, const Tensor& input) mutable {
             const bool here =
                 ++calls > 40 && variable("OWN_RANK") == variable("OMPI_COMM_WORLD_RANK");
             return here ? failed(of.logits(input)) : of.logits(input);
         })},
        {"OtherNames", made<OtherNames>},
        {"OwnGenerator", changed<OneLayer>([](OneLayer& model) {
             model.output = [generator = at::make_generator<at::CPUGeneratorImpl>(42)](
                                OneLayer& of, const Tensor& input) {
                 return of.logits(input + 0.1 * torch::randn(input.sizes(), generator));
             };
         })},
    };
}

std::shared_ptr<Classifier> make(const ModelShape& shape, const ModelSettings&) {
    OwnModels models = architectures();
    models.merge(unusual_tensors());
    models.merge(that_throw());
    models.merge(of_wrong_tensors());
    models.merge(of_unequal_ranks());
    const auto found = models.find(variable("OWN_MODEL"));
    if (found == models.end()) throw std::runtime_error("OWN_MODEL names no model of the plug-in");
    return found->second(shape);
}

}  // namespace
}  // namespace lockstep::test

extern "C" __attribute__((visibility("default"))) const lockstep::ModelPlugin*
lockstep_model_plugin() {
    static constexpr lockstep::ModelPlugin plugin{lockstep::plugin_version,
                                                  TORCH_VERSION,
                                                  lockstep::plugin_shape_bytes,
                                                  lockstep::test::make};
    return &plugin;
}
