// SPDX-License-Identifier: Apache-2.0
#include "support/own_models/own_models.hpp"

#include <tuple>

namespace lockstep::test {
namespace {

namespace F = torch::nn::functional;

// Sequences [T, F], which a model is given as [n, 1, T, F].

template <class Net>
struct Recurrent : Own {
    template <class Options>
    Recurrent(const ModelShape& of, const Options& options, std::int64_t outputs)
        : Own(of),
          net(register_module("net", Net(Options(options).batch_first(true)))),
          last(register_module("last", nn::Linear(outputs, of.classes))) {}
    Tensor forward(const Tensor& input) override {
        return last(std::get<0>(net->forward(input.squeeze(1))).select(1, -1));
    }
    Net net;
    nn::Linear last;
};

struct Attention : Own {
    using Own::Own;
    Tensor forward(const Tensor& input) override {
        const Tensor x = first(input.squeeze(1)).transpose(0, 1);
        return last(std::get<0>(heads(x, x, x)).mean(0));
    }
    nn::Linear first = register_module("first", nn::Linear(shape.width, 32));
    nn::MultiheadAttention heads = register_module("heads", nn::MultiheadAttention(32, 4));
    nn::Linear last = register_module("last", nn::Linear(32, shape.classes));
};

struct Transformer : Own {
    using Own::Own;
    Tensor forward(const Tensor& input) override {
        return last(encoder(first(input.squeeze(1)).transpose(0, 1)).mean(0));
    }
    nn::Linear first = register_module("first", nn::Linear(shape.width, 32));
    nn::TransformerEncoder encoder = register_module(
        "encoder",
        nn::TransformerEncoder(nn::TransformerEncoderLayer(
                                   nn::TransformerEncoderLayerOptions(32, 4).dim_feedforward(64)),
                               2));
    nn::Linear last = register_module("last", nn::Linear(32, shape.classes));
};

struct LanguageLstm : Own {
    using Own::Own;
    Tensor forward(const Tensor& tokens) override {
        return last(std::get<0>(net->forward(words(tokens))));
    }
    nn::Embedding words = register_module("words", nn::Embedding(shape.vocabulary, 32));
    nn::LSTM net = register_module("net", nn::LSTM(nn::LSTMOptions(32, 48).batch_first(true)));
    nn::Linear last = register_module("last", nn::Linear(48, shape.vocabulary));
};

// Images, volumes, points and graphs.

nn::Conv2d conv_of(std::int64_t inputs, std::int64_t outputs) {
    return nn::Conv2d(nn::Conv2dOptions(inputs, outputs, 3).padding(1));
}

struct Norms : Own {
    using Own::Own;
    Tensor forward(const Tensor& images) override {
        return last(layer(torch::silu(each(groups(conv(images)))).mean({2, 3})));
    }
    nn::Conv2d conv = register_module("conv", conv_of(shape.channels, 8));
    nn::GroupNorm groups = register_module("groups", nn::GroupNorm(2, 8));
    nn::InstanceNorm2d each = register_module(
        "each",
        nn::InstanceNorm2d(nn::InstanceNorm2dOptions(8).affine(true).track_running_stats(true)));
    nn::LayerNorm layer = register_module("layer", nn::LayerNorm(nn::LayerNormOptions({8})));
    nn::Linear last = register_module("last", nn::Linear(8, shape.classes));
};

Tensor unit(const Tensor& x, std::int64_t dimension) {
    return F::normalize(x, F::NormalizeFuncOptions().dim(dimension));
}

struct SpectralNorm : Own {
    using Own::Own;
    Tensor forward(const Tensor& input) override {
        const Tensor v = [&] {
            const torch::NoGradGuard none;
            const Tensor right = unit(torch::mv(w.t(), u), 0);
            if (is_training()) u.copy_(unit(torch::mv(w, right), 0));
            return right;
        }();
        const Tensor sigma = torch::dot(u.clone(), torch::mv(w, v));
        return last(torch::relu(F::linear(input.flatten(1), w / sigma)));
    }
    Tensor w = register_parameter("w", 0.1 * torch::randn({32, numbers()}));
    Tensor u = register_buffer("u", unit(torch::randn({32}), 0));
    nn::Linear last = register_module("last", nn::Linear(32, shape.classes));
};

struct Volume : Own {  // [n, C, D, H, W]
    using Own::Own;
    Tensor forward(const Tensor& volumes) override {
        return last(torch::relu(norm(conv(volumes))).mean({2, 3, 4}));
    }
    nn::Conv3d conv =
        register_module("conv", nn::Conv3d(nn::Conv3dOptions(shape.channels, 8, 3).padding(1)));
    nn::BatchNorm3d norm = register_module("norm", nn::BatchNorm3d(8));
    nn::Linear last = register_module("last", nn::Linear(8, shape.classes));
};

struct ImageToImage : Own {
    using Own::Own;
    Tensor forward(const Tensor& images) override {
        return last(torch::relu(first(images))).flatten(1);
    }
    nn::Conv2d first = register_module("first", conv_of(shape.channels, 8));
    nn::Conv2d last = register_module("last", conv_of(8, 1));
};

struct Points : Own {
    using Own::Own;
    Tensor forward(const Tensor& input) override {
        return last(std::get<0>(torch::relu(first(input.squeeze(1))).max(1)));
    }
    nn::Linear first = register_module("first", nn::Linear(shape.width, 64));
    nn::Linear last = register_module("last", nn::Linear(64, shape.classes));
};

struct IndexAdd : Own {
    using Own::Own;
    Tensor forward(const Tensor& input) override {
        const std::int64_t samples = input.size(0), points = input.size(2);
        const Tensor features = torch::relu(first(input.reshape({samples * points, -1})));
        const Tensor owner = torch::arange(samples).repeat_interleave(points);
        return last(torch::zeros({samples, 32}).index_add(0, owner, features));
    }
    nn::Linear first = register_module("first", nn::Linear(shape.width, 32));
    nn::Linear last = register_module("last", nn::Linear(32, shape.classes));
};

struct SeveralInputs : Own {
    using Own::Own;
    Tensor forward(const Tensor&) override { throw std::runtime_error("more inputs are needed"); }
};

struct Graph : SeveralInputs {
    using SeveralInputs::SeveralInputs;
    Tensor forward_all(const std::vector<Tensor>& inputs) override {
        const Tensor nodes = inputs.at(0).squeeze(1);
        const Tensor edges = (inputs.at(1).squeeze(1) > 0.5).to(torch::kFloat);
        const Tensor degree = edges.sum(2, true) + 1;
        const Tensor x = torch::relu(first(torch::bmm(edges, nodes) / degree + nodes));
        return last(torch::relu(second(torch::bmm(edges, x) / degree + x)).mean(1));
    }
    nn::Linear first = register_module("first", nn::Linear(shape.width, 32));
    nn::Linear second = register_module("second", nn::Linear(32, 32));
    nn::Linear last = register_module("last", nn::Linear(32, shape.classes));
};

struct ImageAndNumbers : SeveralInputs {
    using SeveralInputs::SeveralInputs;
    Tensor forward_all(const std::vector<Tensor>& inputs) override {
        return last(torch::cat({torch::relu(conv(inputs.at(0))).mean({2, 3}),
                                torch::relu(numbers(inputs.at(1).flatten(1)))},
                               1));
    }
    nn::Conv2d conv = register_module("conv", conv_of(shape.channels, 8));
    nn::Linear numbers = register_module("numbers", nn::Linear(shape.further.at(0).channels, 8));
    nn::Linear last = register_module("last", nn::Linear(16, shape.classes));
};

// Losses of their own, for --task program.

struct Pinn : Own {  // u'' + u = 0, u(0) = 0, u'(0) = 1
    using Own::Own;
    Tensor u(const Tensor& t) { return last(torch::tanh(first(t))); }
    static Tensor derivative(const Tensor& y, const Tensor& t) {
        return torch::autograd::grad({y}, {t}, {torch::ones_like(y)}, true, true)[0];
    }
    Tensor forward(const Tensor& input) override {  // a class without names returns the loss alone
        const torch::AutoGradMode on(true);
        const Tensor t = input.flatten(1).detach().clone().set_requires_grad(true);
        const Tensor y = u(t);
        const Tensor residual = derivative(derivative(y, t), t) + y;
        const Tensor start = torch::zeros({1, t.size(1)}).set_requires_grad(true);
        const Tensor at_start = u(start);
        const Tensor loss =
            residual.pow(2) + at_start.pow(2) + (derivative(at_start, start) - 1).pow(2);
        return loss.squeeze(1);
    }
    nn::Linear first = register_module("first", nn::Linear(numbers(), 32));
    nn::Linear last = register_module("last", nn::Linear(32, 1));
};

struct Vae : SeveralInputs {
    using SeveralInputs::SeveralInputs;
    NamedTensors forward_named(const std::vector<Tensor>& inputs) override {
        const Tensor x = inputs.at(0).flatten(1), h = torch::relu(encoder(x));
        const Tensor m = mean(h), l = variance(h);
        const Tensor z = is_training() ? m + torch::exp(0.5 * l) * torch::randn_like(l) : m;
        const Tensor divergence = -0.5 * (1 + l - m.pow(2) - l.exp()).mean(1);
        return {{"divergence", divergence}, {"loss", (decoder(z) - x).pow(2).mean(1) + divergence}};
    }
    nn::Linear encoder = register_module("encoder", nn::Linear(numbers(), 64));
    nn::Linear mean = register_module("mean", nn::Linear(64, 8));
    nn::Linear variance = register_module("variance", nn::Linear(64, 8));
    nn::Linear decoder = register_module("decoder", nn::Linear(8, numbers()));
};

struct Contrastive : Own {  // NT-Xent over the samples of a leaf
    using Own::Own;
    Tensor view(const Tensor& x) {
        return unit(last(torch::relu(first(x + 0.1 * torch::randn_like(x)))), 1);
    }
    Tensor forward(const Tensor& input) override {
        const Tensor x = input.flatten(1);
        const Tensor likeness = view(x).mm(view(x).t()) / 0.1;
        const auto each = F::CrossEntropyFuncOptions().reduction(torch::kNone);
        return F::cross_entropy(likeness, torch::arange(x.size(0)), each);
    }
    nn::Linear first = register_module("first", nn::Linear(numbers(), 64));
    nn::Linear last = register_module("last", nn::Linear(64, 16));
};

struct OwnLoss : SeveralInputs {
    using SeveralInputs::SeveralInputs;
    NamedTensors forward_named(const std::vector<Tensor>& in) override {
        const Tensor logits = net(in[0].flatten(1) + torch::randn({}));
        const Tensor loss = torch::cross_entropy_loss(logits, in[1], {}, at::Reduction::None);
        return {{"right", logits.argmax(1).eq(in[1])}, {"loss", loss}};
    }
    nn::Linear net = register_module("net", nn::Linear(numbers(), shape.further.at(0).vocabulary));
};

struct TwoTasks : SeveralInputs {  // a class and a number
    using SeveralInputs::SeveralInputs;
    NamedTensors forward_named(const std::vector<Tensor>& inputs) override {
        const Tensor x = torch::relu(first(inputs.at(0).flatten(1))), logits = classes(x);
        const auto each = F::CrossEntropyFuncOptions().reduction(torch::kNone);
        const Tensor apart = (number(x) - inputs.at(2).flatten(1)).pow(2).squeeze(1);
        return {{"loss", F::cross_entropy(logits, inputs.at(1), each) + 0.5 * apart},
                {"right", logits.argmax(1).eq(inputs.at(1))},
                {"spread", apart.mean()}};
    }
    nn::Linear first = register_module("first", nn::Linear(numbers(), 32));
    nn::Linear classes = register_module("classes", nn::Linear(32, shape.further.at(0).vocabulary));
    nn::Linear number = register_module("number", nn::Linear(32, 1));
};

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

OwnModels architectures() {
    return {{"Attention", made<Attention>},
            {"Contrastive", made<Contrastive>},
            {"DeepLstm",
             [](const ModelShape& of) {
                 const auto deep = nn::LSTMOptions(of.width, 32).num_layers(2).dropout(0.2);
                 return std::make_shared<Recurrent<nn::LSTM>>(
                     of, nn::LSTMOptions(deep).bidirectional(true), 64);
             }},
            {"Graph", made<Graph>},
            {"Gru",
             [](const ModelShape& of) {
                 return std::make_shared<Recurrent<nn::GRU>>(of, nn::GRUOptions(of.width, 24), 24);
             }},
            {"ImageAndNumbers", made<ImageAndNumbers>},
            {"ImageToImage", made<ImageToImage>},
            {"IndexAdd", made<IndexAdd>},
            {"LanguageLstm", made<LanguageLstm>},
            {"Lstm",
             [](const ModelShape& of) {
                 return std::make_shared<Recurrent<nn::LSTM>>(
                     of, nn::LSTMOptions(of.width, 32), 32);
             }},
            {"Norms", made<Norms>},
            {"OwnLoss", made<OwnLoss>},
            {"Pinn", made<Pinn>},
            {"Points", made<Points>},
            {"SpectralNorm", made<SpectralNorm>},
            {"Transformer", made<Transformer>},
            {"TwoTasks", made<TwoTasks>},
            {"Vae", made<Vae>},
            {"Volume", made<Volume>}};
}

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
