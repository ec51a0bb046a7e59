// SPDX-License-Identifier: Apache-2.0
// DenseNet: Huang et al., https://arxiv.org/abs/1608.06993.
#include "model/built_in.hpp"
#include "model/layers.hpp"

#include <algorithm>
#include <array>

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <torch/nn/init.h>

namespace lockstep::models {
namespace {

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

std::shared_ptr<Chain> dense_features(std::int64_t in, std::int64_t& channels) {
    auto chain = std::make_shared<Chain>();
    channels = 2 * dense_growth;
    chain->add("conv0", dense_conv({in, channels, 7, 2}))
        .add<BatchNorm>("norm0", channels)
        .then(rectify)
        .then([](const Tensor& x) { return at::max_pool2d(x, 3, 2, 1); });
    for (std::size_t i = 1; i <= dense_layers.size(); ++i) {
        auto block = std::make_shared<Chain>();
        for (int k = 1; k <= dense_layers[i - 1]; ++k, channels += dense_growth)
            block->add<DenseLayer>(fmt::format("denselayer{}", k), channels);
        chain->add(fmt::format("denseblock{}", i), block);
        if (i == dense_layers.size()) break;
        chain->add(fmt::format("transition{}", i), transition(channels));
        channels /= 2;
    }
    chain->add<BatchNorm>("norm5", channels);
    return chain;
}

}  // namespace

std::shared_ptr<Classifier> densenet121(const ModelShape& shape, const ModelSettings& settings) {
    check_sides(shape, 8);
    auto net = std::make_shared<Chain>();
    std::int64_t channels = 0;
    net->add("features", dense_features(shape.channels, channels)).then(rectify).then(map_means);
    auto classifier = std::make_shared<Linear>(channels, shape.classes, settings);
    if (settings.bias) torch::nn::init::zeros_(classifier->bias);
    net->add("classifier", classifier);
    return net;
}

}  // namespace lockstep::models
