// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"

#include "model/built_in.hpp"

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

LayerNorm::LayerNorm(std::int64_t features, double epsilon)
    : weight_(register_parameter("weight", torch::ones({features}))),
      bias_(register_parameter("bias", torch::zeros({features}))),
      epsilon_(epsilon) {}

Tensor LayerNorm::forward(const Tensor& x) {
    return at::layer_norm(x, {x.size(-1)}, weight_, bias_, epsilon_);
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

Tensor attention(const Tensor& mixed, std::int64_t heads, Sight sight, double dropout) {
    const std::int64_t n = mixed.size(0), tokens = mixed.size(1), width = mixed.size(2) / 3;
    const auto parts = mixed.view({n, tokens, 3, heads, width / heads}).permute({2, 0, 3, 1, 4});
    const Tensor seen = at::scaled_dot_product_attention(
        parts[0], parts[1], parts[2], {}, dropout, sight == Sight::earlier);
    return seen.transpose(1, 2).reshape({n, tokens, width});
}

void check_sides(const ModelShape& shape, std::int64_t side) {
    check(shape.height >= side && shape.width >= side, [&] {
        return Error("E217",
                     fmt::format("images are {}x{}", shape.height, shape.width),
                     fmt::format("this model needs at least {}x{}", side, side),
                     "use --model mlp, or larger images, as by --transform 'resize 32x32'");
    });
}

}  // namespace lockstep::models
