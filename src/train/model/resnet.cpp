// SPDX-License-Identifier: Apache-2.0
// ResNet: He et al., https://arxiv.org/abs/1512.03385; in bottlenecks the 3x3 convolution has the
// stride, as in torchvision.
#include "model/built_in.hpp"
#include "model/layers.hpp"

#include <array>

#include <ATen/Functions.h>
#include <fmt/format.h>

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

std::shared_ptr<Classifier> resnet(Block block,
                                   const Depths& depths,
                                   const ModelShape& shape,
                                   const ModelSettings& settings) {
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
}

}  // namespace

std::shared_ptr<Classifier> resnet18(const ModelShape& shape, const ModelSettings& settings) {
    return resnet(Block::basic, {2, 2, 2, 2}, shape, settings);
}

std::shared_ptr<Classifier> resnet34(const ModelShape& shape, const ModelSettings& settings) {
    return resnet(Block::basic, {3, 4, 6, 3}, shape, settings);
}

std::shared_ptr<Classifier> resnet50(const ModelShape& shape, const ModelSettings& settings) {
    return resnet(Block::bottleneck, {3, 4, 6, 3}, shape, settings);
}

}  // namespace lockstep::models
