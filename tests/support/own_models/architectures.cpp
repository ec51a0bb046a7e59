// SPDX-License-Identifier: Apache-2.0
#include "support/own_models/own_models.hpp"

#include <tuple>

namespace lockstep::test {
namespace {

namespace F = torch::nn::functional;

// Sequences [T, F], which a model is given as [n, 1, T, F].

template <class Net, class Options>
struct Recurrent : Classifier {
    Recurrent(const ModelShape& shape, const Options& options, std::int64_t outputs)
        : net(register_module("net", Net(options))),
          last(register_module("last", nn::Linear(outputs, shape.classes))) {}
    Tensor forward(const Tensor& input) override {
        return last(std::get<0>(net->forward(input.squeeze(1))).select(1, -1));
    }
    Net net{nullptr};
    nn::Linear last;
};

struct Lstm : Recurrent<nn::LSTM, nn::LSTMOptions> {
    explicit Lstm(const ModelShape& shape)
        : Recurrent(shape, nn::LSTMOptions(shape.width, 32).batch_first(true), 32) {}
};

struct DeepLstm : Recurrent<nn::LSTM, nn::LSTMOptions> {
    explicit DeepLstm(const ModelShape& shape)
        : Recurrent(shape,
                    nn::LSTMOptions(shape.width, 32)
                        .batch_first(true)
                        .num_layers(2)
                        .dropout(0.2)
                        .bidirectional(true),
                    64) {}
};

struct Gru : Recurrent<nn::GRU, nn::GRUOptions> {
    explicit Gru(const ModelShape& shape)
        : Recurrent(shape, nn::GRUOptions(shape.width, 24).batch_first(true), 24) {}
};

struct Attention : Classifier {
    explicit Attention(const ModelShape& shape)
        : first(register_module("first", nn::Linear(shape.width, 32))),
          heads(register_module("heads", nn::MultiheadAttention(32, 4))),
          last(register_module("last", nn::Linear(32, shape.classes))) {}
    Tensor forward(const Tensor& input) override {
        const Tensor x = first(input.squeeze(1)).transpose(0, 1);
        return last(std::get<0>(heads(x, x, x)).mean(0));
    }
    nn::Linear first;
    nn::MultiheadAttention heads;
    nn::Linear last;
};

struct Transformer : Classifier {
    explicit Transformer(const ModelShape& shape)
        : first(register_module("first", nn::Linear(shape.width, 32))),
          encoder(register_module(
              "encoder",
              nn::TransformerEncoder(
                  nn::TransformerEncoderLayer(
                      nn::TransformerEncoderLayerOptions(32, 4).dim_feedforward(64)),
                  2))),
          last(register_module("last", nn::Linear(32, shape.classes))) {}
    Tensor forward(const Tensor& input) override {
        return last(encoder(first(input.squeeze(1)).transpose(0, 1)).mean(0));
    }
    nn::Linear first;
    nn::TransformerEncoder encoder;
    nn::Linear last;
};

struct LanguageLstm : Classifier {
    explicit LanguageLstm(const ModelShape& shape)
        : words(register_module("words", nn::Embedding(shape.vocabulary, 32))),
          net(register_module("net", nn::LSTM(nn::LSTMOptions(32, 48).batch_first(true)))),
          last(register_module("last", nn::Linear(48, shape.vocabulary))) {}
    Tensor forward(const Tensor& tokens) override {
        return last(std::get<0>(net->forward(words(tokens))));
    }
    nn::Embedding words;
    nn::LSTM net;
    nn::Linear last;
};

// Images, volumes, points and graphs.

struct Norms : Classifier {
    explicit Norms(const ModelShape& shape)
        : conv(register_module("conv",
                               nn::Conv2d(nn::Conv2dOptions(shape.channels, 8, 3).padding(1)))),
          groups(register_module("groups", nn::GroupNorm(2, 8))),
          each(register_module(
              "each",
              nn::InstanceNorm2d(
                  nn::InstanceNorm2dOptions(8).affine(true).track_running_stats(true)))),
          layer(register_module("layer", nn::LayerNorm(nn::LayerNormOptions({8})))),
          last(register_module("last", nn::Linear(8, shape.classes))) {}
    Tensor forward(const Tensor& images) override {
        return last(layer(torch::silu(each(groups(conv(images)))).mean({2, 3})));
    }
    nn::Conv2d conv;
    nn::GroupNorm groups;
    nn::InstanceNorm2d each;
    nn::LayerNorm layer;
    nn::Linear last;
};

Tensor unit(const Tensor& x, std::int64_t dimension) {
    return F::normalize(x, F::NormalizeFuncOptions().dim(dimension));
}

struct SpectralNorm : Classifier {
    explicit SpectralNorm(const ModelShape& shape)
        : w(register_parameter("w", 0.1 * torch::randn({32, numbers_of(shape)}))),
          u(register_buffer("u", unit(torch::randn({32}), 0))),
          last(register_module("last", nn::Linear(32, shape.classes))) {}
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
    Tensor w, u;
    nn::Linear last;
};

struct Volume : Classifier {  // [n, C, D, H, W]
    explicit Volume(const ModelShape& shape)
        : conv(register_module("conv",
                               nn::Conv3d(nn::Conv3dOptions(shape.channels, 8, 3).padding(1)))),
          norm(register_module("norm", nn::BatchNorm3d(8))),
          last(register_module("last", nn::Linear(8, shape.classes))) {}
    Tensor forward(const Tensor& volumes) override {
        return last(torch::relu(norm(conv(volumes))).mean({2, 3, 4}));
    }
    nn::Conv3d conv;
    nn::BatchNorm3d norm;
    nn::Linear last;
};

struct ImageToImage : Classifier {
    explicit ImageToImage(const ModelShape& shape)
        : first(register_module("first",
                                nn::Conv2d(nn::Conv2dOptions(shape.channels, 8, 3).padding(1)))),
          last(register_module("last", nn::Conv2d(nn::Conv2dOptions(8, 1, 3).padding(1)))) {}
    Tensor forward(const Tensor& images) override {
        return last(torch::relu(first(images))).flatten(1);
    }
    nn::Conv2d first, last;
};

struct Points : TwoLayers {
    explicit Points(const ModelShape& shape) : TwoLayers(shape.width, 64, shape.classes) {}
    Tensor forward(const Tensor& input) override {
        return last(std::get<0>(torch::relu(first(input.squeeze(1))).max(1)));
    }
};

struct IndexAdd : TwoLayers {
    explicit IndexAdd(const ModelShape& shape) : TwoLayers(shape.width, 32, shape.classes) {}
    Tensor forward(const Tensor& input) override {
        const std::int64_t samples = input.size(0), points = input.size(2);
        const Tensor features = torch::relu(first(input.reshape({samples * points, -1})));
        const Tensor owner = torch::arange(samples).repeat_interleave(points);
        return last(torch::zeros({samples, 32}).index_add(0, owner, features));
    }
};

struct SeveralInputs : Classifier {
    Tensor forward(const Tensor&) override { throw std::runtime_error("more inputs are needed"); }
};

struct Graph : SeveralInputs {
    explicit Graph(const ModelShape& shape)
        : first(register_module("first", nn::Linear(shape.width, 32))),
          second(register_module("second", nn::Linear(32, 32))),
          last(register_module("last", nn::Linear(32, shape.classes))) {}
    Tensor forward_all(const std::vector<Tensor>& inputs) override {
        const Tensor nodes = inputs.at(0).squeeze(1);
        const Tensor edges = (inputs.at(1).squeeze(1) > 0.5).to(torch::kFloat);
        const Tensor degree = edges.sum(2, true) + 1;
        const Tensor x = torch::relu(first(torch::bmm(edges, nodes) / degree + nodes));
        return last(torch::relu(second(torch::bmm(edges, x) / degree + x)).mean(1));
    }
    nn::Linear first, second, last;
};

struct ImageAndNumbers : SeveralInputs {
    explicit ImageAndNumbers(const ModelShape& shape)
        : conv(register_module("conv",
                               nn::Conv2d(nn::Conv2dOptions(shape.channels, 8, 3).padding(1)))),
          numbers(register_module("numbers", nn::Linear(shape.further.at(0).channels, 8))),
          last(register_module("last", nn::Linear(16, shape.classes))) {}
    Tensor forward_all(const std::vector<Tensor>& inputs) override {
        return last(torch::cat({torch::relu(conv(inputs.at(0))).mean({2, 3}),
                                torch::relu(numbers(inputs.at(1).flatten(1)))},
                               1));
    }
    nn::Conv2d conv;
    nn::Linear numbers, last;
};

// Losses of their own, for --task program.

struct Pinn : TwoLayers {  // u'' + u = 0, u(0) = 0, u'(0) = 1
    explicit Pinn(const ModelShape& shape) : TwoLayers(numbers_of(shape), 32, 1) {}
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
};

struct Vae : SeveralInputs {
    explicit Vae(const ModelShape& shape)
        : encoder(register_module("encoder", nn::Linear(numbers_of(shape), 64))),
          mean(register_module("mean", nn::Linear(64, 8))),
          variance(register_module("variance", nn::Linear(64, 8))),
          decoder(register_module("decoder", nn::Linear(8, numbers_of(shape)))) {}
    NamedTensors forward_named(const std::vector<Tensor>& inputs) override {
        const Tensor x = inputs.at(0).flatten(1), h = torch::relu(encoder(x));
        const Tensor m = mean(h), l = variance(h);
        const Tensor z = is_training() ? m + torch::exp(0.5 * l) * torch::randn_like(l) : m;
        const Tensor divergence = -0.5 * (1 + l - m.pow(2) - l.exp()).mean(1);
        return {{"divergence", divergence}, {"loss", (decoder(z) - x).pow(2).mean(1) + divergence}};
    }
    nn::Linear encoder, mean, variance, decoder;
};

struct Contrastive : TwoLayers {  // NT-Xent over the samples of a leaf
    explicit Contrastive(const ModelShape& shape) : TwoLayers(numbers_of(shape), 64, 16) {}
    Tensor view(const Tensor& x) {
        return unit(last(torch::relu(first(x + 0.1 * torch::randn_like(x)))), 1);
    }
    Tensor forward(const Tensor& input) override {
        const Tensor x = input.flatten(1);
        const Tensor likeness = view(x).mm(view(x).t()) / 0.1;
        const auto each = F::CrossEntropyFuncOptions().reduction(torch::kNone);
        return F::cross_entropy(likeness, torch::arange(x.size(0)), each);
    }
};

struct OwnLoss : SeveralInputs {
    explicit OwnLoss(const ModelShape& shape)
        : net(register_module("net",
                              nn::Linear(numbers_of(shape), shape.further.at(0).vocabulary))) {}
    NamedTensors forward_named(const std::vector<Tensor>& in) override {
        const Tensor logits = net(in[0].flatten(1) + torch::randn({}));
        const Tensor loss = torch::cross_entropy_loss(logits, in[1], {}, at::Reduction::None);
        return {{"right", logits.argmax(1).eq(in[1])}, {"loss", loss}};
    }
    nn::Linear net;
};

struct TwoTasks : SeveralInputs {  // a class and a number
    explicit TwoTasks(const ModelShape& shape)
        : first(register_module("first", nn::Linear(numbers_of(shape), 32))),
          classes(register_module("classes", nn::Linear(32, shape.further.at(0).vocabulary))),
          number(register_module("number", nn::Linear(32, 1))) {}
    NamedTensors forward_named(const std::vector<Tensor>& inputs) override {
        const Tensor x = torch::relu(first(inputs.at(0).flatten(1))), logits = classes(x);
        const auto each = F::CrossEntropyFuncOptions().reduction(torch::kNone);
        const Tensor apart = (number(x) - inputs.at(2).flatten(1)).pow(2).squeeze(1);
        return {{"loss", F::cross_entropy(logits, inputs.at(1), each) + 0.5 * apart},
                {"right", logits.argmax(1).eq(inputs.at(1))},
                {"spread", apart.mean()}};
    }
    nn::Linear first, classes, number;
};

}  // namespace

OwnModels architectures() {
    return {{"Attention", made<Attention>},
            {"Contrastive", made<Contrastive>},
            {"DeepLstm", made<DeepLstm>},
            {"Graph", made<Graph>},
            {"Gru", made<Gru>},
            {"ImageAndNumbers", made<ImageAndNumbers>},
            {"ImageToImage", made<ImageToImage>},
            {"IndexAdd", made<IndexAdd>},
            {"LanguageLstm", made<LanguageLstm>},
            {"Lstm", made<Lstm>},
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

}  // namespace lockstep::test
