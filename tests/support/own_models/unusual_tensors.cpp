// SPDX-License-Identifier: Apache-2.0
#include "support/own_models/own_models.hpp"

namespace lockstep::test {
namespace {

namespace F = torch::nn::functional;

// Weights that are used, or learn, in ways of their own.

struct WeightTwice : OneLayer {
    explicit WeightTwice(const ModelShape& shape)
        : OneLayer(shape),
          w(register_parameter("w", 0.05 * torch::randn({numbers_of(shape), 32}))) {}
    Tensor forward(const Tensor& input) override {
        return logits(torch::relu(input.flatten(1).mm(w)).mm(w.t()));
    }
    Tensor w;
};

struct ModuleTwice : OneLayer {
    explicit ModuleTwice(const ModelShape& shape)
        : OneLayer(shape),
          inner(register_module("inner", nn::Linear(numbers_of(shape), numbers_of(shape)))) {}
    Tensor forward(const Tensor& input) override {
        return logits(torch::relu(inner(torch::relu(inner(input.flatten(1))))));
    }
    nn::Linear inner;
};

struct Frozen : TwoLayers {
    explicit Frozen(const ModelShape& shape) : TwoLayers(shape) {
        for (Tensor& parameter : first->parameters()) parameter.set_requires_grad(false);
    }
    Tensor forward(const Tensor& input) override {
        TORCH_WARN("the first layer is frozen");
        return TwoLayers::forward(input);
    }
};

struct Unused : OneLayer {
    explicit Unused(const ModelShape& shape) : OneLayer(shape) {
        register_module("unused", nn::Linear(16, 32));
    }
};

// A branch by values: some leaves of a step reach `more`, and some steps none of them.
struct Sometimes : OneLayer {
    explicit Sometimes(const ModelShape& shape)
        : OneLayer(shape),
          more(register_module("more", nn::Linear(numbers_of(shape), shape.classes))) {}
    Tensor forward(const Tensor& input) override {
        const Tensor x = input.flatten(1);
        return x.mean().item<float>() > 0.05F ? logits(x) + more(x) : logits(x);
    }
    nn::Linear more;
};

struct PartWithoutGradients : TwoLayers {
    using TwoLayers::TwoLayers;
    Tensor forward(const Tensor& input) override {
        const Tensor fixed = [&] {
            const torch::NoGradGuard none;
            return features(input);
        }();
        return last(fixed);
    }
};

struct WeightsAsBuffers : Classifier {
    explicit WeightsAsBuffers(const ModelShape& shape)
        : w(register_buffer("w", 0.05 * torch::randn({32, numbers_of(shape)}))),
          last(register_module("last", nn::Linear(32, shape.classes))) {}
    Tensor forward(const Tensor& input) override {
        return last(torch::relu(F::linear(input.flatten(1), w)));
    }
    Tensor w;
    nn::Linear last;
};

struct Transposed : Classifier {
    explicit Transposed(const ModelShape& shape)
        : w(register_parameter("w",
                               (0.05 * torch::randn({shape.classes, numbers_of(shape)})).t())) {}
    Tensor forward(const Tensor& input) override { return input.flatten(1).mm(w); }
    Tensor w;
};

struct Scalar : OneLayer {
    explicit Scalar(const ModelShape& shape)
        : OneLayer(shape), scale(register_parameter("scale", torch::tensor(1.0F))) {}
    Tensor forward(const Tensor& input) override { return logits(input) * scale; }
    Tensor scale;
};

struct Empty : OneLayer {
    explicit Empty(const ModelShape& shape)
        : OneLayer(shape), none(register_parameter("none", torch::zeros({0}))) {}
    Tensor forward(const Tensor& input) override { return logits(input) + none.sum(); }
    Tensor none;
};

struct Embedded : Classifier {
    explicit Embedded(const ModelShape& shape)
        : words(register_module("words", nn::Embedding(256, 16))),
          last(register_module("last", nn::Linear(16, shape.classes))) {}
    Tensor forward(const Tensor& input) override {
        return last(words((input.flatten(1) * 10).to(torch::kLong).clamp(0, 255)).mean(1));
    }
    nn::Embedding words;
    nn::Linear last;
};

// Arithmetic.

struct InDoubles : OneLayer {
    using OneLayer::OneLayer;
    Tensor forward(const Tensor& input) override {
        return F::linear(input.flatten(1).to(torch::kDouble),
                         layer->weight.to(torch::kDouble),
                         layer->bias.to(torch::kDouble));
    }
};

struct InHalves : OneLayer {
    using OneLayer::OneLayer;
    Tensor forward(const Tensor& input) override { return logits(input).to(torch::kBFloat16); }
};

struct ScaleFunction : torch::autograd::Function<ScaleFunction> {
    static Tensor forward(torch::autograd::AutogradContext* context,
                          const Tensor& x,
                          const Tensor& w) {
        context->save_for_backward({x, w});
        return x * w;
    }
    static torch::autograd::variable_list backward(
        torch::autograd::AutogradContext* context,
        const torch::autograd::variable_list& gradients) {
        const auto saved = context->get_saved_variables();
        return {gradients[0] * saved[1], (gradients[0] * saved[0]).sum(0)};
    }
};

struct OwnFunction : OneLayer {
    explicit OwnFunction(const ModelShape& shape)
        : OneLayer(shape), w(register_parameter("w", torch::ones({numbers_of(shape)}))) {}
    Tensor forward(const Tensor& input) override {
        return logits(ScaleFunction::apply(input.flatten(1), w));
    }
    Tensor w;
};

struct BatchMaximum : OneLayer {
    using OneLayer::OneLayer;
    Tensor forward(const Tensor& input) override {
        return logits(input / input.abs().max().clamp_min(1));
    }
};

struct InPlace : OneLayer {
    using OneLayer::OneLayer;
    Tensor forward(const Tensor& input) override {
        Tensor x = input;
        return logits(x.mul_(0.5));
    }
};

struct Noise : OneLayer {
    using OneLayer::OneLayer;
    Tensor forward(const Tensor& input) override {
        return logits(is_training() ? input + 0.1 * torch::randn_like(input) : input);
    }
};

// A counter of steps as E707 says that one is kept.
struct CountingBuffer : OneLayer {
    explicit CountingBuffer(const ModelShape& shape)
        : OneLayer(shape), calls(register_buffer("calls", torch::zeros({}, torch::kLong))) {}
    Tensor forward(const Tensor& input) override {
        if (is_training()) calls.add_(1);
        return logits(input) / (1 + calls % 5);
    }
    Tensor calls;
};

}  // namespace

OwnModels unusual_tensors() {
    return {{"BatchMaximum", made<BatchMaximum>},
            {"CountingBuffer", made<CountingBuffer>},
            {"Embedded", made<Embedded>},
            {"Empty", made<Empty>},
            {"Frozen", made<Frozen>},
            {"InDoubles", made<InDoubles>},
            {"InHalves", made<InHalves>},
            {"InPlace", made<InPlace>},
            {"ModuleTwice", made<ModuleTwice>},
            {"Noise", made<Noise>},
            {"OwnFunction", made<OwnFunction>},
            {"PartWithoutGradients", made<PartWithoutGradients>},
            {"Scalar", made<Scalar>},
            {"Sometimes", made<Sometimes>},
            {"Transposed", made<Transposed>},
            {"Unused", made<Unused>},
            {"WeightTwice", made<WeightTwice>},
            {"WeightsAsBuffers", made<WeightsAsBuffers>}};
}

}  // namespace lockstep::test
