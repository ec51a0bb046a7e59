// SPDX-License-Identifier: Apache-2.0
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

// Exceptions.

struct ThrowsInConstructor : OneLayer {
    explicit ThrowsInConstructor(const ModelShape& shape) : OneLayer(shape) {
        TORCH_CHECK(shape.classes == 77, "I need 77 classes, not ", shape.classes);
    }
};

struct LoopsInConstructor : OneLayer {
    explicit LoopsInConstructor(const ModelShape& shape) : OneLayer(shape) {
        while (true) std::this_thread::sleep_for(std::chrono::seconds(1));
    }
};

struct ThrowsInForward : OneLayer {
    using OneLayer::OneLayer;
    Tensor forward(const Tensor&) override { throw std::runtime_error("first line\nsecond line"); }
};

struct ThrowsLater : OneLayer {
    using OneLayer::OneLayer;
    Tensor forward(const Tensor& input) override {
        if (++calls > 40) throw std::runtime_error("after 40 calls\nand more");
        return logits(input);
    }
    int calls = 0;
};

/// On rank OWN_RANK alone, in the way that OWN_WAY names.
struct FailsLater : OneLayer {
    using OneLayer::OneLayer;
    Tensor forward(const Tensor& input) override {
        if (++calls <= 40 || !is("OWN_RANK", variable("OMPI_COMM_WORLD_RANK")))
            return logits(input);
        if (is("OWN_WAY", "throw")) throw std::runtime_error("after 40 calls");
        if (is("OWN_WAY", "exit")) std::exit(0);
        if (is("OWN_WAY", "_exit")) std::_Exit(0);
        if (is("OWN_WAY", "abort")) std::abort();
        if (is("OWN_WAY", "segv")) std::raise(SIGSEGV);
        if (is("OWN_WAY", "shape")) return logits(input).unsqueeze(2);
        return logits(input) * std::numeric_limits<float>::quiet_NaN();
    }
    static std::string variable(const char* name) {
        const char* value = std::getenv(name);
        return value == nullptr ? "" : value;
    }
    static bool is(const char* name, const std::string& value) { return variable(name) == value; }
    int calls = 0;
};

struct ThrowsInTrain : OneLayer {
    using OneLayer::OneLayer;
    void train(bool) override { throw std::runtime_error("no modes here"); }
};

struct ThrowsInEvaluation : OneLayer {
    using OneLayer::OneLayer;
    Tensor forward(const Tensor& input) override {
        if (!is_training()) throw std::runtime_error("nothing to test");
        return logits(input);
    }
};

struct ThrowsNumber : OneLayer {
    using OneLayer::OneLayer;
    Tensor forward(const Tensor&) override { throw 42; }
};

struct ThrowingFunction : torch::autograd::Function<ThrowingFunction> {
    static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x) { return x.clone(); }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                   const torch::autograd::variable_list&) {
        throw std::runtime_error("no way back");
    }
};

struct ThrowsInBackward : OneLayer {
    using OneLayer::OneLayer;
    Tensor forward(const Tensor& input) override { return ThrowingFunction::apply(logits(input)); }
};

// Outputs.

struct Detached : OneLayer {
    using OneLayer::OneLayer;
    Tensor forward(const Tensor& input) override { return logits(input).detach(); }
};

struct WrongShape : OneLayer {
    using OneLayer::OneLayer;
    Tensor forward(const Tensor& input) override { return logits(input).unsqueeze(2); }
};

struct WrongInput : OneLayer {
    explicit WrongInput(const ModelShape& shape) : OneLayer(shape) {
        layer = register_module("narrow", nn::Linear(3, shape.classes));
    }
};

// Tensors.

struct Tied : TwoLayers {
    explicit Tied(const ModelShape& shape) : TwoLayers(shape) {
        register_parameter("again", last->weight);
    }
};

struct SparseGradients : Classifier {
    explicit SparseGradients(const ModelShape& shape)
        : words(register_module("words", nn::Embedding(nn::EmbeddingOptions(64, 8).sparse(true)))),
          last(register_module("last", nn::Linear(8, shape.classes))) {}
    Tensor forward(const Tensor& input) override {
        return last(words((input.flatten(1) * 8).to(torch::kLong).clamp(0, 63)).mean(1));
    }
    nn::Embedding words;
    nn::Linear last;
};

struct NoParameter : Classifier {
    explicit NoParameter(const ModelShape& shape) : classes(shape.classes) {}
    Tensor forward(const Tensor& input) override { return input.flatten(1).narrow(1, 0, classes); }
    std::int64_t classes;
};

struct AllFrozen : OneLayer {
    explicit AllFrozen(const ModelShape& shape) : OneLayer(shape) {
        for (Tensor& parameter : parameters()) parameter.set_requires_grad(false);
    }
};

struct WrongShapeLater : OneLayer {
    using OneLayer::OneLayer;
    Tensor forward(const Tensor& input) override {
        return ++calls > 40 ? logits(input).unsqueeze(2) : logits(input);
    }
    int calls = 0;
};

struct WrongShapeInEvaluation : OneLayer {
    using OneLayer::OneLayer;
    Tensor forward(const Tensor& input) override {
        return is_training() ? logits(input) : logits(input).unsqueeze(2);
    }
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

struct DoubleParameter : OneLayer {
    explicit DoubleParameter(const ModelShape& shape) : OneLayer(shape) {
        scale = register_parameter("scale", torch::ones({1}, torch::kDouble));
    }
    Tensor forward(const Tensor& input) override { return logits(input) * scale.to(torch::kFloat); }
    Tensor scale;
};

struct BoolBuffer : OneLayer {
    explicit BoolBuffer(const ModelShape& shape) : OneLayer(shape) {
        register_buffer("mask", torch::ones({4}, torch::kBool));
    }
};

// What equal ranks do not compute alike.

struct OwnGenerator : OneLayer {
    using OneLayer::OneLayer;
    Tensor forward(const Tensor& input) override {
        return logits(input + 0.1 * torch::randn(input.sizes(), generator));
    }
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(42);
};

struct Counting : OneLayer {
    using OneLayer::OneLayer;
    Tensor forward(const Tensor& input) override { return logits(input) / (1 + ++calls % 5); }
    int calls = 0;
};

struct Clock : OneLayer {
    using OneLayer::OneLayer;
    Tensor forward(const Tensor& input) override {
        const auto ticks = std::chrono::steady_clock::now().time_since_epoch().count();
        return logits(input) * (1 + 1e-5 * static_cast<double>(ticks % 1009));
    }
};

}  // namespace

OwnModels mistakes() {
    return {{"AllFrozen", made<AllFrozen>},
            {"BoolBuffer", made<BoolBuffer>},
            {"Clock", made<Clock>},
            {"Counting", made<Counting>},
            {"Detached", made<Detached>},
            {"DoubleParameter", made<DoubleParameter>},
            {"FailsLater", made<FailsLater>},
            {"LoopsInConstructor", made<LoopsInConstructor>},
            {"NoParameter", made<NoParameter>},
            {"OtherNames", made<OtherNames>},
            {"OwnGenerator", made<OwnGenerator>},
            {"SparseGradients", made<SparseGradients>},
            {"Thawing", made<Thawing>},
            {"ThrowsInBackward", made<ThrowsInBackward>},
            {"ThrowsInConstructor", made<ThrowsInConstructor>},
            {"ThrowsInEvaluation", made<ThrowsInEvaluation>},
            {"ThrowsInForward", made<ThrowsInForward>},
            {"ThrowsInTrain", made<ThrowsInTrain>},
            {"ThrowsLater", made<ThrowsLater>},
            {"ThrowsNumber", made<ThrowsNumber>},
            {"Tied", made<Tied>},
            {"WrongInput", made<WrongInput>},
            {"WrongShape", made<WrongShape>},
            {"WrongShapeInEvaluation", made<WrongShapeInEvaluation>},
            {"WrongShapeLater", made<WrongShapeLater>}};
}

}  // namespace lockstep::test
