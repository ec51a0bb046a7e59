// SPDX-License-Identifier: Apache-2.0
// ResNet: He et al., https://arxiv.org/abs/1512.03385; in bottlenecks the 3x3 convolution has the
// stride, as in torchvision.
// DenseNet: Huang et al., https://arxiv.org/abs/1608.06993.
// EfficientNet: Tan and Le, https://arxiv.org/abs/1905.11946.
// U-Net: see unet().

#include "model/built_in.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <torch/nn/init.h>

namespace lockstep::models {
namespace {

using Depths = std::array<int, 4>;  // blocks of each stage

enum class Block { basic, bottleneck };

// Convolutions with batch norm, plus the input or a projection of it.
class Residual : public Chain {
  public:
    Residual(std::int64_t in, const std::vector<ConvShape>& convs) {
        std::int64_t stride = 1;
        for (std::size_t i = 0; i < convs.size(); ++i) {
            if (i > 0) then(rectify);
            add<Conv>(fmt::format("conv{}", i + 1), convs[i]);
            add<BatchNorm>(fmt::format("bn{}", i + 1), convs[i].out);
            stride *= convs[i].stride;
        }
        const std::int64_t out = convs.back().out;
        if (stride == 1 && in == out) return;
        shortcut_ = part<Chain>("downsample");
        shortcut_->add<Conv>("0", ConvShape{in, out, 1, stride}).add<BatchNorm>("1", out);
    }

    Tensor forward(const Tensor& x) override {
        const Tensor y = Chain::forward(x);
        return rectify(y.add_(shortcut_ ? shortcut_->forward(x) : x));
    }

  private:
    std::shared_ptr<Chain> shortcut_;
};

std::vector<ConvShape> convs_of(Block block, std::int64_t in, std::int64_t w, std::int64_t stride) {
    if (block == Block::basic) return {{in, w, 3, stride}, {w, w, 3}};
    return {{in, w, 1}, {w, w, 3, stride}, {w, 4 * w, 1}};
}

ModelFactory resnet(Block block, const Depths& depths) {
    return [=](const ModelShape& shape, const ModelSettings& settings) {
        check_sides(shape, 8);
        auto net = std::make_shared<Chain>();
        net->add<Conv>("conv1", ConvShape{shape.channels, 64, 7, 2})
            .add<BatchNorm>("bn1", 64)
            .then(rectify)
            .then([](const Tensor& x) { return at::max_pool2d(x, 3, 2, 1); });
        std::int64_t in = 64;
        for (int stage = 0; stage < 4; ++stage) {
            auto layer = std::make_shared<Chain>();
            for (int i = 0; i < depths[stage]; ++i) {
                const auto convs = convs_of(block, in, 64 << stage, stage > 0 && i == 0 ? 2 : 1);
                layer->add<Residual>(fmt::format("{}", i), in, convs);
                in = convs.back().out;
            }
            net->add(fmt::format("layer{}", stage + 1), layer);
        }
        net->then(map_means).add<Linear>("fc", in, shape.classes, settings);
        return net;
    };
}

constexpr std::int64_t dense_growth = 32;  // channels that each layer adds
constexpr std::int64_t dense_width = 4;    // times as wide within
constexpr std::array<int, 4> dense_layers = {6, 12, 24, 16};

std::shared_ptr<Conv> dense_conv(const ConvShape& shape) {
    return std::make_shared<Conv>(shape, Fan::in);
}

// Appends its output to its input.
class DenseLayer : public Chain {
  public:
    explicit DenseLayer(std::int64_t in) {
        add<BatchNorm>("norm1", in).then(rectify);
        add("conv1", dense_conv({in, dense_width * dense_growth, 1}));
        add<BatchNorm>("norm2", dense_width * dense_growth).then(rectify);
        add("conv2", dense_conv({dense_width * dense_growth, dense_growth, 3}));
    }

    Tensor forward(const Tensor& x) override { return at::cat({x, Chain::forward(x)}, 1); }
};

// A side of one pixel stays: images of 28x28 come to that before the last block.
Tensor halved(const Tensor& x) {
    return at::avg_pool2d(
        x, {std::min<std::int64_t>(x.size(2), 2), std::min<std::int64_t>(x.size(3), 2)});
}

std::shared_ptr<Chain> transition(std::int64_t in) {
    auto chain = std::make_shared<Chain>();
    chain->add<BatchNorm>("norm", in)
        .then(rectify)
        .add("conv", dense_conv({in, in / 2, 1}))
        .then(halved);
    return chain;
}

std::shared_ptr<Classifier> densenet121(const ModelShape& shape, const ModelSettings& settings) {
    check_sides(shape, 8);
    std::int64_t channels = 2 * dense_growth;
    auto features = std::make_shared<Chain>();
    features->add("conv0", dense_conv({shape.channels, channels, 7, 2}))
        .add<BatchNorm>("norm0", channels)
        .then(rectify)
        .then([](const Tensor& x) { return at::max_pool2d(x, 3, 2, 1); });
    for (std::size_t i = 1; i <= dense_layers.size(); ++i) {
        auto block = std::make_shared<Chain>();
        for (int k = 1; k <= dense_layers[i - 1]; ++k, channels += dense_growth)
            block->add<DenseLayer>(fmt::format("denselayer{}", k), channels);
        features->add(fmt::format("denseblock{}", i), block);
        if (i == dense_layers.size()) break;
        features->add(fmt::format("transition{}", i), transition(channels));
        channels /= 2;
    }
    features->add<BatchNorm>("norm5", channels);
    auto classifier = std::make_shared<Linear>(channels, shape.classes, settings);
    if (settings.bias) torch::nn::init::zeros_(classifier->bias);
    auto net = std::make_shared<Chain>();
    net->add("features", features).then(rectify).then(map_means).add("classifier", classifier);
    return net;
}

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
    bool bias = true;  // for squeezes
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

ModelFactory efficientnet(const Scale& usual) {
    return [=](const ModelShape& shape, const ModelSettings& settings) {
        Scale scale = usual;
        scale.bias = settings.bias;
        check_sides(shape, 8);
        auto features = std::make_shared<Chain>();
        std::int64_t in = channels_of(scale, 32);
        append(*features, conv_norm_silu({shape.channels, in, 3, 2}, scale));
        int done = 0, all = 0;
        for (const BlockGroup& stage : b0_stages) all += blocks_of(scale, stage);
        for (BlockGroup stage : b0_stages) {
            auto blocks = std::make_shared<Chain>();
            const int count = blocks_of(scale, stage);
            stage.out = channels_of(scale, stage.out);
            for (int i = 0; i < count; ++i, ++done, in = stage.out, stage.stride = 1) {
                const double skipped = most_skipped * done / all;
                append(*blocks, std::make_shared<InvertedResidual>(stage, in, skipped, scale));
            }
            append(*features, blocks);
        }
        append(*features, conv_norm_silu({in, 4 * in, 1}, scale));
        auto linear = std::make_shared<Linear>(4 * in, shape.classes, settings);
        const double bound = 1 / std::sqrt(static_cast<double>(shape.classes));
        torch::nn::init::uniform_(linear->weight, -bound, bound);
        if (settings.bias) torch::nn::init::zeros_(linear->bias);
        auto classifier = std::make_shared<Chain>();
        append(append(*classifier, std::make_shared<Dropout>(scale.dropout)), linear);
        auto net = std::make_shared<Chain>();
        net->add("features", features).then(map_means).add("classifier", classifier);
        return net;
    };
}

constexpr int levels = 4;  // below the first, each with half the side and twice the channels

// A chain of one part, for its name.
std::shared_ptr<Chain> named(const std::string& name, std::shared_ptr<Layer> layer) {
    auto chain = std::make_shared<Chain>();
    chain->add(name, std::move(layer));
    return chain;
}

std::shared_ptr<Chain> two_convs(std::int64_t in, std::int64_t out) {
    auto convs = std::make_shared<Chain>();
    convs->add<Conv>("0", ConvShape{in, out})
        .add<BatchNorm>("1", out)
        .then(rectify)
        .add<Conv>("3", ConvShape{out, out})
        .add<BatchNorm>("4", out)
        .then(rectify);
    return named("double_conv", convs);
}

std::shared_ptr<Chain> down(std::int64_t in) {
    auto chain = std::make_shared<Chain>();
    chain->then([](const Tensor& x) { return at::max_pool2d(x, 2); });
    chain->add("1", two_convs(in, 2 * in));
    return named("maxpool_conv", chain);
}

// Each pixel becomes two by two: [n, in, H, W] -> [n, in / 2, 2 H, 2 W].
class Doubled : public Layer {
  public:
    Doubled(std::int64_t in, const ModelSettings& settings)
        : weight_(register_parameter("weight", torch::empty({in, in / 2, 2, 2}))) {
        torch::nn::init::kaiming_normal_(weight_, 0, torch::kFanOut);
        if (settings.bias) bias_ = register_parameter("bias", torch::zeros({in / 2}));
    }

    Tensor forward(const Tensor& x) override { return at::conv_transpose2d(x, weight_, bias_, 2); }

  private:
    Tensor weight_, bias_;
};

// One level up again, beside what that level had on the way down.
class Up : public torch::nn::Module {
  public:
    Up(std::int64_t in, const ModelSettings& settings)
        : doubled_(register_module("up", std::make_shared<Doubled>(in, settings))),
          convs_(register_module("conv", two_convs(in, in / 2))) {}

    // A side that was odd lost a pixel, which comes back as zeros.
    Tensor forward(const Tensor& below, const Tensor& beside) {
        const Tensor x = doubled_->forward(below);
        const std::int64_t rows = beside.size(2) - x.size(2), columns = beside.size(3) - x.size(3);
        const std::int64_t left = columns / 2, top = rows / 2;
        const Tensor fitted = at::constant_pad_nd(x, {left, columns - left, top, rows - top});
        return convs_->forward(at::cat({beside, fitted}, 1));
    }

  private:
    std::shared_ptr<Layer> doubled_, convs_;
};

class Unet : public Layer {
  public:
    Unet(const ModelShape& shape, const ModelSettings& settings) {
        const std::int64_t width = settings.width > 0 ? settings.width : 64;
        down_.push_back(register_module("inc", two_convs(shape.channels, width)));
        for (int i = 0; i < levels; ++i)
            down_.push_back(register_module(fmt::format("down{}", i + 1), down(width << i)));
        for (int i = levels; i > 0; --i)
            up_.push_back(part<Up>(fmt::format("up{}", levels - i + 1), width << i, settings));
        const ConvShape last{width, shape.classes, 1, 1, 1, settings.bias};
        out_ = register_module("outc", named("conv", std::make_shared<Conv>(last)));
    }

    Tensor forward(const Tensor& images) override {
        std::vector<Tensor> seen;
        for (const auto& level : down_)
            seen.push_back(level->forward(seen.empty() ? images : seen.back()));
        Tensor x = seen.back();
        for (std::size_t i = 0; i < up_.size(); ++i)
            x = up_[i]->forward(x, seen[up_.size() - 1 - i]);
        return out_->forward(x);
    }

  private:
    std::vector<std::shared_ptr<Chain>> down_;
    std::vector<std::shared_ptr<Up>> up_;
    std::shared_ptr<Chain> out_;
};

}  // namespace

std::map<std::string, ModelFactory> convolutional_models() {
    return {{"densenet121", densenet121},
            {"efficientnet_b0", efficientnet({1.0, 1.0, 0.2, {}})},
            {"efficientnet_b7", efficientnet({2.0, 3.1, 0.5, {1e-3, 0.01}})},
            {"resnet18", resnet(Block::basic, {2, 2, 2, 2})},
            {"resnet34", resnet(Block::basic, {3, 4, 6, 3})},
            {"resnet50", resnet(Block::bottleneck, {3, 4, 6, 3})},
            {"unet", unet}};
}

std::shared_ptr<Classifier> unet(const ModelShape& shape, const ModelSettings& settings) {
    check_sides(shape, 1 << levels);
    return std::make_shared<Unet>(shape, settings);
}

}  // namespace lockstep::models
