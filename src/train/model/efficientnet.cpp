// SPDX-License-Identifier: Apache-2.0
// EfficientNet: Tan and Le, https://arxiv.org/abs/1905.11946.
#include "model/built_in.hpp"
#include "model/layers.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <torch/nn/init.h>

namespace lockstep::models {
namespace {

struct BlockGroup {
    std::int64_t expansion, kernel, stride, out;
    int blocks;
};

// The stages of b0, whose width and depth the others multiply.
constexpr BlockGroup b0_stages[] = {{1, 3, 1, 16, 1},
                                    {6, 3, 2, 24, 2},
                                    {6, 5, 2, 40, 2},
                                    {6, 3, 2, 80, 3},
                                    {6, 5, 1, 112, 3},
                                    {6, 5, 2, 192, 4},
                                    {6, 3, 1, 320, 1}};
constexpr double most_skipped = 0.2;  // how often training skips the last block

struct Scale {
    double width, depth, dropout;
    NormRule norm;
    bool bias;  // for squeezes and the classifier
};

std::int64_t channels_of(const Scale& scale, std::int64_t channels) {
    const double wanted = static_cast<double>(channels) * scale.width;
    const auto near = std::max<std::int64_t>(8, static_cast<std::int64_t>(wanted + 4) / 8 * 8);
    return static_cast<double>(near) < 0.9 * wanted ? near + 8 : near;
}

int blocks_of(const Scale& scale, const BlockGroup& stage) {
    return static_cast<int>(std::ceil(stage.blocks * scale.depth));
}

Tensor silu(const Tensor& x) {
    return at::silu(x);
}

// Names are numbers from 0.
Chain& append(Chain& chain, std::shared_ptr<Layer> layer) {
    return chain.add(fmt::format("{}", chain.children().size()), std::move(layer));
}

std::shared_ptr<Chain> conv_norm(const ConvShape& shape, const Scale& scale) {
    auto chain = std::make_shared<Chain>();
    append(*chain, std::make_shared<Conv>(shape));
    append(*chain, std::make_shared<BatchNorm>(shape.out, scale.norm));
    return chain;
}

std::shared_ptr<Chain> conv_norm_silu(const ConvShape& shape, const Scale& scale) {
    auto chain = conv_norm(shape, scale);
    chain->then(silu);
    return chain;
}

// Weighs channels by what their means say (Hu et al., https://arxiv.org/abs/1709.01507).
class Squeeze : public Chain {
  public:
    Squeeze(std::int64_t channels, std::int64_t within, const Scale& scale) {
        then([](const Tensor& x) { return at::adaptive_avg_pool2d(x, {1, 1}); });
        add<Conv>("fc1", ConvShape{channels, within, 1, 1, 1, scale.bias});
        then(silu);
        add<Conv>("fc2", ConvShape{within, channels, 1, 1, 1, scale.bias});
    }

    Tensor forward(const Tensor& x) override { return x * at::sigmoid(Chain::forward(x)); }
};

// Expand, convolve each channel alone, weigh, project.
class InvertedResidual : public Layer {
  public:
    InvertedResidual(const BlockGroup& stage, std::int64_t in, double skipped, const Scale& scale)
        : block_(part<Chain>("block")),
          skip_(part<StochasticDepth>("stochastic_depth", skipped)),
          is_residual_(stage.stride == 1 && in == stage.out) {
        const std::int64_t wide = in * stage.expansion;
        if (wide != in) append(*block_, conv_norm_silu({in, wide, 1}, scale));
        append(*block_, conv_norm_silu({wide, wide, stage.kernel, stage.stride, wide}, scale));
        append(*block_, std::make_shared<Squeeze>(wide, std::max<std::int64_t>(1, in / 4), scale));
        append(*block_, conv_norm({wide, stage.out, 1}, scale));
    }

    Tensor forward(const Tensor& x) override {
        const Tensor y = block_->forward(x);
        return is_residual_ ? skip_->forward(y) + x : y;
    }

  private:
    std::shared_ptr<Chain> block_;
    std::shared_ptr<StochasticDepth> skip_;
    bool is_residual_;
};

// Returns them, and how many channels come out.
std::pair<std::shared_ptr<Chain>, std::int64_t> scaled_features(std::int64_t channels,
                                                                const Scale& scale) {
    auto chain = std::make_shared<Chain>();
    std::int64_t in = channels_of(scale, 32);
    append(*chain, conv_norm_silu({channels, in, 3, 2}, scale));
    int done = 0, all = 0;
    for (const BlockGroup& stage : b0_stages) all += blocks_of(scale, stage);
    for (BlockGroup stage : b0_stages) {
        auto blocks = std::make_shared<Chain>();
        const int count = blocks_of(scale, stage);
        stage.out = channels_of(scale, stage.out);
        for (int i = 0; i < count; ++i, ++done, in = stage.out, stage.stride = 1)
            append(*blocks,
                   std::make_shared<InvertedResidual>(stage, in, most_skipped * done / all, scale));
        append(*chain, blocks);
    }
    append(*chain, conv_norm_silu({in, 4 * in, 1}, scale));
    return {chain, 4 * in};
}

std::shared_ptr<Classifier> efficientnet(const Scale& scale,
                                         const ModelShape& shape,
                                         const ModelSettings& settings) {
    check_sides(shape, 8);
    auto net = std::make_shared<Chain>();
    const auto [found, channels] = scaled_features(shape.channels, scale);
    net->add("features", found).then(map_means);
    auto linear = std::make_shared<Linear>(channels, shape.classes, settings);
    const double bound = 1 / std::sqrt(static_cast<double>(shape.classes));
    torch::nn::init::uniform_(linear->weight, -bound, bound);
    if (settings.bias) torch::nn::init::zeros_(linear->bias);
    auto classifier = std::make_shared<Chain>();
    append(append(*classifier, std::make_shared<Dropout>(scale.dropout)), linear);
    net->add("classifier", classifier);
    return net;
}

}  // namespace

std::shared_ptr<Classifier> efficientnet_b0(const ModelShape& shape,
                                            const ModelSettings& settings) {
    return efficientnet({1.0, 1.0, 0.2, {}, settings.bias}, shape, settings);
}

std::shared_ptr<Classifier> efficientnet_b7(const ModelShape& shape,
                                            const ModelSettings& settings) {
    return efficientnet({2.0, 3.1, 0.5, {1e-3, 0.01}, settings.bias}, shape, settings);
}

}  // namespace lockstep::models
