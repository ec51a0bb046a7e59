// SPDX-License-Identifier: Apache-2.0
// Layers, and the transformers that are made of them.
// ViT: Dosovitskiy et al., https://arxiv.org/abs/2010.11929. Sides need not be equal.

#include "model/built_in.hpp"

#include "lockstep/core/error.hpp"

#include <cmath>

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <torch/nn/init.h>
#include <torch/utils.h>

namespace lockstep::models {

Chain& Chain::add(const std::string& name, std::shared_ptr<Layer> layer) {
    register_module(name, layer);
    return then([layer](const Tensor& x) { return layer->forward(x); });
}

Chain& Chain::then(Step step) {
    steps_.push_back(std::move(step));
    return *this;
}

Tensor Chain::forward(const Tensor& x) {
    Tensor y = x;
    for (const Step& step : steps_) y = step(y);
    return y;
}

Conv::Conv(const ConvShape& shape, Fan fan)
    : weight(register_parameter(
          "weight",
          torch::empty({shape.out, shape.in / shape.groups, shape.kernel, shape.kernel}))),
      shape_(shape) {
    const std::int64_t connections = fan == Fan::in ? shape.in / shape.groups : shape.out;
    const auto total = static_cast<double>(connections * shape.kernel * shape.kernel);
    torch::nn::init::normal_(weight, 0, std::sqrt(2 / total));
    if (shape.bias) bias = register_parameter("bias", torch::zeros({shape.out}));
}

Tensor Conv::forward(const Tensor& x) {
    const std::int64_t padding = shape_.padding.value_or((shape_.kernel - 1) / 2);
    return at::conv2d(x, weight, bias, shape_.stride, padding, 1, shape_.groups);
}

void check_has_statistics(const Tensor& x) {
    TORCH_CHECK(x.numel() > x.size(1),
                "Expected more than 1 value per channel when training, got input size ",
                x.sizes());
}

BatchNorm::BatchNorm(std::int64_t channels, NormRule rule)
    : weight_(register_parameter("weight", torch::ones({channels}))),
      bias_(register_parameter("bias", torch::zeros({channels}))),
      mean_(register_buffer("running_mean", torch::zeros({channels}))),
      variance_(register_buffer("running_var", torch::ones({channels}))),
      batches_(register_buffer("num_batches_tracked", torch::zeros({}, torch::kInt64))),
      rule_(rule) {}

Tensor BatchNorm::forward(const Tensor& x) {
    if (is_training()) {
        check_has_statistics(x);
        batches_.add_(1);
    }
    return at::batch_norm(
        x, weight_, bias_, mean_, variance_, is_training(), rule_.momentum, rule_.epsilon, false);
}

Linear::Linear(std::int64_t in, std::int64_t out, const ModelSettings& settings)
    : weight(register_parameter("weight", torch::empty({out, in}))) {
    const double bound = 1 / std::sqrt(static_cast<double>(in));
    torch::nn::init::uniform_(weight, -bound, bound);
    if (settings.bias)
        bias = register_parameter("bias", torch::empty({out}).uniform_(-bound, bound));
}

Tensor Linear::forward(const Tensor& x) {
    return at::linear(x, weight, bias);
}

Tensor Dropout::forward(const Tensor& x) {
    return at::dropout(x, probability_, is_training());
}

Tensor StochasticDepth::forward(const Tensor& x) {
    if (!is_training() || probability_ == 0) return x;
    const double survival = 1 - probability_;
    const auto where = torch::TensorOptions(x.device());
    return x * torch::empty({x.size(0), 1, 1, 1}, where).bernoulli_(survival).div_(survival);
}

Tensor rectify(const Tensor& x) {
    return x.relu_();
}

Tensor map_means(const Tensor& x) {
    return at::adaptive_avg_pool2d(x, {1, 1}).flatten(1);
}

void check_sides(const ModelShape& shape, std::int64_t side) {
    check(shape.height >= side && shape.width >= side,
          "E217",
          fmt::format("images are {}x{}", shape.height, shape.width),
          fmt::format("this model needs at least {}x{}", side, side),
          "use --model mlp, or larger images, as by --transform 'resize 32x32'");
}

namespace {

// Normalises over the last dimension.
class LayerNorm : public Layer {
  public:
    LayerNorm(std::int64_t features, double epsilon)
        : weight_(register_parameter("weight", torch::ones({features}))),
          bias_(register_parameter("bias", torch::zeros({features}))),
          epsilon_(epsilon) {}

    Tensor forward(const Tensor& x) override {
        return at::layer_norm(x, {x.size(-1)}, weight_, bias_, epsilon_);
    }

  private:
    Tensor weight_, bias_;
    double epsilon_;
};

enum class Sight { all, earlier };  // the tokens that an attention sees

// Scaled dot-product attention (https://arxiv.org/abs/1706.03762): queries, keys and values side by
// side [n, T, 3 * width] -> [n, T, width].
Tensor attention(const Tensor& mixed, std::int64_t heads, Sight sight, double dropout = 0) {
    const std::int64_t n = mixed.size(0), tokens = mixed.size(1), width = mixed.size(2) / 3;
    const auto parts = mixed.view({n, tokens, 3, heads, width / heads}).permute({2, 0, 3, 1, 4});
    const Tensor seen = at::scaled_dot_product_attention(
        parts[0], parts[1], parts[2], {}, dropout, sight == Sight::earlier);
    return seen.transpose(1, 2).reshape({n, tokens, width});
}

constexpr std::int64_t patch_side = 16;  // pixels of a side
constexpr std::int64_t vit_width = 768, vit_heads = 12, vit_layers = 12, vit_within = 3072;
constexpr double vit_epsilon = 1e-6;

std::shared_ptr<LayerNorm> vit_norm() {
    return std::make_shared<LayerNorm>(vit_width, vit_epsilon);
}

// Parameters as torch.nn.MultiheadAttention has them.
class SelfAttention : public Layer {
  public:
    explicit SelfAttention(const ModelSettings& settings)
        : weight_(register_parameter("in_proj_weight", torch::empty({3 * vit_width, vit_width}))) {
        torch::nn::init::xavier_uniform_(weight_);
        if (settings.bias)
            bias_ = register_parameter("in_proj_bias", torch::zeros({3 * vit_width}));
        out_ = part<Linear>("out_proj", vit_width, vit_width, settings);
        if (settings.bias) torch::nn::init::zeros_(out_->bias);
    }

    Tensor forward(const Tensor& x) override {
        return out_->forward(attention(at::linear(x, weight_, bias_), vit_heads, Sight::all));
    }

  private:
    Tensor weight_, bias_;
    std::shared_ptr<Linear> out_;
};

std::shared_ptr<Linear> feed_forward(std::int64_t in,
                                     std::int64_t out,
                                     const ModelSettings& settings) {
    auto linear = std::make_shared<Linear>(in, out, settings);
    torch::nn::init::xavier_uniform_(linear->weight);
    if (settings.bias) torch::nn::init::normal_(linear->bias, 0, 1e-6);
    return linear;
}

// Tokens [n, T, width] to as many; each half adds to its input.
class EncoderLayer : public Layer {
  public:
    explicit EncoderLayer(const ModelSettings& settings)
        : first_(register_module("ln_1", vit_norm())),
          attention_(part<SelfAttention>("self_attention", settings)),
          second_(register_module("ln_2", vit_norm())),
          mlp_(part<Chain>("mlp")) {
        mlp_->add("0", feed_forward(vit_width, vit_within, settings))
            .then([](const Tensor& x) { return at::gelu(x); })
            .add("3", feed_forward(vit_within, vit_width, settings));
    }

    Tensor forward(const Tensor& x) override {
        const Tensor y = x + attention_->forward(first_->forward(x));
        return y + mlp_->forward(second_->forward(y));
    }

  private:
    std::shared_ptr<Layer> first_, attention_, second_;
    std::shared_ptr<Chain> mlp_;
};

class Encoder : public Chain {
  public:
    Encoder(std::int64_t tokens, const ModelSettings& settings)
        : position_(register_parameter("pos_embedding", torch::empty({1, tokens, vit_width}))) {
        torch::nn::init::normal_(position_, 0, 0.02);
        auto chain = std::make_shared<Chain>();
        for (std::int64_t i = 0; i < vit_layers; ++i)
            chain->add<EncoderLayer>(fmt::format("encoder_layer_{}", i), settings);
        add("layers", chain).add("ln", vit_norm());
    }

    Tensor forward(const Tensor& x) override { return Chain::forward(x + position_); }

  private:
    Tensor position_;
};

class Vit : public Layer {
  public:
    Vit(const ModelShape& shape, const ModelSettings& settings)
        : class_token_(register_parameter("class_token", torch::zeros({1, 1, vit_width}))) {
        const ConvShape patches{
            shape.channels, vit_width, patch_side, patch_side, 1, settings.bias, 0};
        auto conv = std::make_shared<Conv>(patches);
        const auto fan_in = static_cast<double>(shape.channels * patch_side * patch_side);
        torch::nn::init::normal_(conv->weight, 0, std::sqrt(1 / fan_in));
        patches_ = register_module("conv_proj", conv);
        const std::int64_t tokens = (shape.height / patch_side) * (shape.width / patch_side) + 1;
        encoder_ = part<Encoder>("encoder", tokens, settings);
        auto head = std::make_shared<Linear>(vit_width, shape.classes, settings);
        torch::nn::init::zeros_(head->weight);
        if (settings.bias) torch::nn::init::zeros_(head->bias);
        heads_ = part<Chain>("heads");
        heads_->add("head", head);
    }

    Tensor forward(const Tensor& images) override {
        const Tensor seen = patches_->forward(images).flatten(2).transpose(1, 2);
        const Tensor first = class_token_.expand({images.size(0), -1, -1});
        return heads_->forward(encoder_->forward(at::cat({first, seen}, 1)).select(1, 0));
    }

  private:
    Tensor class_token_;
    std::shared_ptr<Layer> patches_, encoder_;
    std::shared_ptr<Chain> heads_;
};

constexpr double deviation = 0.02;  // deviation of initial weights

// A linear layer whose weight is stored transposed, as GPT-2's are: [in, out].
class Product : public Layer {
  public:
    Product(std::int64_t in, std::int64_t out, double spread, const ModelSettings& settings)
        : weight_(register_parameter("weight", torch::empty({in, out}))) {
        torch::nn::init::normal_(weight_, 0, spread);
        if (settings.bias) bias_ = register_parameter("bias", torch::zeros({out}));
    }

    Tensor forward(const Tensor& x) override { return at::linear(x, weight_.t(), bias_); }

  private:
    Tensor weight_, bias_;
};

// Rows of a table: i64 [...] -> [..., width].
class Embedding : public Layer {
  public:
    Embedding(std::int64_t rows, std::int64_t width)
        : weight(register_parameter("weight", torch::empty({rows, width}))) {
        torch::nn::init::normal_(weight, 0, deviation);
    }

    Tensor forward(const Tensor& x) override { return at::embedding(weight, x); }

    Tensor weight;
};

class CausalAttention : public Layer {
  public:
    CausalAttention(const GptShape& shape, double last_spread, const ModelSettings& settings)
        : mix_(part<Product>("c_attn", shape.width, 3 * shape.width, deviation, settings)),
          out_(part<Product>("c_proj", shape.width, shape.width, last_spread, settings)),
          heads_(shape.heads),
          dropout_(shape.dropout) {}

    Tensor forward(const Tensor& x) override {
        const double dropout = is_training() ? dropout_ : 0;
        return out_->forward(attention(mix_->forward(x), heads_, Sight::earlier, dropout));
    }

  private:
    std::shared_ptr<Layer> mix_, out_;
    std::int64_t heads_;
    double dropout_;
};

class DecoderLayer : public Layer {
  public:
    DecoderLayer(const GptShape& shape, const ModelSettings& settings)
        : first_(part<LayerNorm>("ln_1", shape.width, 1e-5)) {
        const double last_spread = deviation / std::sqrt(2.0 * static_cast<double>(shape.layers));
        attention_ = part<CausalAttention>("attn", shape, last_spread, settings);
        second_ = part<LayerNorm>("ln_2", shape.width, 1e-5);
        auto mlp = std::make_shared<Chain>();
        const std::int64_t wide = 4 * shape.width;
        mlp->add<Product>("c_fc", shape.width, wide, deviation, settings)
            .then([](const Tensor& x) { return at::gelu(x, "tanh"); })
            .add<Product>("c_proj", wide, shape.width, last_spread, settings);
        mlp_ = register_module("mlp", mlp);
        dropout_ = part<Dropout>("dropout", shape.dropout);
    }

    Tensor forward(const Tensor& x) override {
        const Tensor y = x + dropout_->forward(attention_->forward(first_->forward(x)));
        return y + dropout_->forward(mlp_->forward(second_->forward(y)));
    }

  private:
    std::shared_ptr<Layer> first_, attention_, second_, mlp_, dropout_;
};

// Logits are products with the tokens' own embeddings.
class Gpt : public Layer {
  public:
    Gpt(const GptShape& shape, const ModelSettings& settings)
        : tokens_(part<Embedding>("wte", shape.vocabulary, shape.width)),
          positions_(part<Embedding>("wpe", shape.context, shape.width)),
          context_(shape.context) {
        auto layers = std::make_shared<Chain>();
        for (std::int64_t i = 0; i < shape.layers; ++i)
            layers->add<DecoderLayer>(fmt::format("{}", i), shape, settings);
        dropout_ = part<Dropout>("drop", shape.dropout);
        layers_ = register_module("h", layers);
        norm_ = part<LayerNorm>("ln_f", shape.width, 1e-5);
    }

    Tensor forward(const Tensor& tokens) override {
        const std::int64_t length = tokens.size(1);
        check(length <= context_, [&] {
            return Error("E217",
                         fmt::format("sequences have {} tokens", length),
                         fmt::format("this model takes at most {}", context_),
                         "cut them, or make a model with a longer context");
        });
        const Tensor places = positions_->forward(at::arange(length, tokens.options()));
        const Tensor x = dropout_->forward(tokens_->forward(tokens) + places);
        return at::linear(norm_->forward(layers_->forward(x)), tokens_->weight);
    }

  private:
    std::shared_ptr<Embedding> tokens_, positions_;
    std::shared_ptr<Layer> dropout_, layers_, norm_;
    std::int64_t context_;
};

}  // namespace

std::shared_ptr<Classifier> vit_b_16(const ModelShape& shape, const ModelSettings& settings) {
    check(shape.height % patch_side == 0 && shape.width % patch_side == 0,
          "E217",
          fmt::format("images are {}x{}", shape.height, shape.width),
          fmt::format("vit_b_16 cuts them into patches of {0}x{0}", patch_side),
          "use sides that are multiples of 16, as by --transform 'resize 32x32'");
    return std::make_shared<Vit>(shape, settings);
}

std::shared_ptr<Layer> gpt(const GptShape& shape, const ModelSettings& settings) {
    check(shape.heads > 0 && shape.width % shape.heads == 0,
          "E217",
          fmt::format("{} heads do not divide a width of {}", shape.heads, shape.width),
          "all heads of an attention are equally wide",
          "use a width that is a multiple of the heads");
    return std::make_shared<Gpt>(shape, settings);
}

std::shared_ptr<Classifier> token_decoder(const ModelShape& shape, const ModelSettings& settings) {
    check(shape.vocabulary > 0,
          "E217",
          "gpt takes tokens, and the data have none",
          "it is given whole numbers [n, T]",
          "pack text with 'lockstep data pack --text' or --tokens, or use another model");
    const auto size = [](std::int64_t given, std::int64_t usual) {
        return given > 0 ? given : usual;
    };
    return gpt({.vocabulary = shape.vocabulary,
                .context = shape.width,
                .layers = size(settings.layers, 6),
                .heads = size(settings.heads, 6),
                .width = size(settings.width, 384)},
               settings);
}

}  // namespace lockstep::models
