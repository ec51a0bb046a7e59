// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"

#include "model/built_in.hpp"

#include <cmath>

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <torch/nn/init.h>

namespace lockstep::models {
namespace {

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

std::shared_ptr<Layer> gpt(const GptShape& shape, const ModelSettings& settings) {
    check(shape.heads > 0 && shape.width % shape.heads == 0, [&] {
        return Error("E217",
                     fmt::format("{} heads do not divide a width of {}", shape.heads, shape.width),
                     "all heads of an attention are equally wide",
                     "use a width that is a multiple of the heads");
    });
    return std::make_shared<Gpt>(shape, settings);
}

std::shared_ptr<Classifier> token_decoder(const ModelShape& shape, const ModelSettings& settings) {
    check(shape.vocabulary > 0, [&] {
        return Error(
            "E217",
            "gpt takes tokens, and the data have none",
            "it is given whole numbers [n, T]",
            "pack text with 'lockstep data pack --text' or --tokens, or use another model");
    });
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
