// SPDX-License-Identifier: Apache-2.0
#include "support/own_models/own_models.hpp"

namespace lockstep::test {
namespace {

namespace F = torch::nn::functional;

// Weights that are used, or learn, in ways of their own.

struct WeightTwice : OneLayer {
    using OneLayer::OneLayer;
    Tensor forward(const Tensor& input) override {
        return logits(torch::relu(input.flatten(1).mm(w)).mm(w.t()));
    }
    Tensor w = register_parameter("w", 0.05 * torch::randn({numbers(), 32}));
};

struct ModuleTwice : OneLayer {
    using OneLayer::OneLayer;
    Tensor forward(const Tensor& input) override {
        return logits(torch::relu(inner(torch::relu(inner(input.flatten(1))))));
    }
    nn::Linear inner = register_module("inner", nn::Linear(numbers(), numbers()));
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

// A branch by values: some leaves of a step reach `more`, and some steps none of them.
struct Sometimes : OneLayer {
    using OneLayer::OneLayer;
    Tensor forward(const Tensor& input) override {
        const Tensor x = input.flatten(1);
        return x.mean().item<float>() > 0.05F ? logits(x) + more(x) : logits(x);
    }
    nn::Linear more = register_module("more", nn::Linear(numbers(), shape.classes));
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

struct WeightsAsBuffers : Own {
    using Own::Own;
    Tensor forward(const Tensor& input) override {
        return last(torch::relu(F::linear(input.flatten(1), w)));
    }
    Tensor w = register_buffer("w", 0.05 * torch::randn({32, numbers()}));
    nn::Linear last = register_module("last", nn::Linear(32, shape.classes));
};

struct Transposed : Own {
    using Own::Own;
    Tensor forward(const Tensor& input) override { return input.flatten(1).mm(w); }
    Tensor w = register_parameter("w", (0.05 * torch::randn({shape.classes, numbers()})).t());
};

struct Scalar : OneLayer {
    using OneLayer::OneLayer;
    Tensor forward(const Tensor& input) override { return logits(input) * scale; }
    Tensor scale = register_parameter("scale", torch::tensor(1.0F));
};

struct Empty : OneLayer {
    using OneLayer::OneLayer;
    Tensor forward(const Tensor& input) override { return logits(input) + none.sum(); }
    Tensor none = register_parameter("none", torch::zeros({0}));
};

struct Embedded : Own {
    using Own::Own;
    Tensor forward(const Tensor& input) override {
        return last(words((input.flatten(1) * 10).to(torch::kLong).clamp(0, 255)).mean(1));
    }
    nn::Embedding words = register_module("words", nn::Embedding(256, 16));
    nn::Linear last = register_module("last", nn::Linear(16, shape.classes));
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
    using OneLayer::OneLayer;
    Tensor forward(const Tensor& input) override {
        return logits(ScaleFunction::apply(input.flatten(1), w));
    }
    Tensor w = register_parameter("w", torch::ones({numbers()}));
};

// A counter of steps as E707 says that one is kept.
struct CountingBuffer : OneLayer {
    using OneLayer::OneLayer;
    Tensor forward(const Tensor& input) override {
        if (is_training()) calls.add_(1);
        return logits(input) / (1 + calls % 5);
    }
    Tensor calls = register_buffer("calls", torch::zeros({}, torch::kLong));
};

}  // namespace

OwnModels unusual_tensors() {
    return {
        {"BatchMaximum", one_layer([](OneLayer& of, const Tensor& input) {
             return of.logits(input / input.abs().max().clamp_min(1));
         })},
        {"CountingBuffer", made<CountingBuffer>},
        {"Embedded", made<Embedded>},
        {"Empty", made<Empty>},
        {"Frozen", made<Frozen>},
        {"InDoubles", one_layer([](OneLayer& of, const Tensor& input) {
             return F::linear(input.flatten(1).to(torch::kDouble),
                              of.layer->weight.to(torch::kDouble),
                              of.layer->bias.to(torch::kDouble));
         })},
        {"InHalves", one_layer([](OneLayer& of, const Tensor& input) {
             return of.logits(input).to(torch::kBFloat16);
         })},
        {"InPlace",
         one_layer([](OneLayer& of, const Tensor& input) { return of.logits(input.mul_(0.5)); })},
        {"ModuleTwice", made<ModuleTwice>},
        {"Noise", one_layer([](OneLayer& of, const Tensor& input) {
             return of.logits(of.is_training() ? input + 0.1 * torch::randn_like(input) : input);
         })},
        {"OwnFunction", made<OwnFunction>},
        {"PartWithoutGradients", made<PartWithoutGradients>},
        {"Scalar", made<Scalar>},
        {"Sometimes", made<Sometimes>},
        {"Transposed", made<Transposed>},
        {"Unused",
         changed<OneLayer>([](OneLayer& of) { of.register_module("unused", nn::Linear(16, 32)); })},
        {"WeightTwice", made<WeightTwice>},
        {"WeightsAsBuffers", made<WeightsAsBuffers>}};
}

}  // namespace lockstep::test
