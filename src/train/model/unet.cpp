// SPDX-License-Identifier: Apache-2.0
#include "model/built_in.hpp"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <torch/nn/init.h>

namespace lockstep::models {
namespace {

constexpr int levels = 4;  // below the first, each with half the side and twice the channels

std::shared_ptr<Chain> two_convs(std::int64_t in, std::int64_t out) {
    auto convs = std::make_shared<Chain>();
    convs->add<Conv>("0", ConvShape{in, out})
        .add<BatchNorm>("1", out)
        .then(rectify)
        .add<Conv>("3", ConvShape{out, out})
        .add<BatchNorm>("4", out)
        .then(rectify);
    auto named = std::make_shared<Chain>();
    named->add("double_conv", convs);
    return named;
}

std::shared_ptr<Chain> down(std::int64_t in) {
    auto chain = std::make_shared<Chain>();
    chain->then([](const Tensor& x) { return at::max_pool2d(x, 2); });
    chain->add("1", two_convs(in, 2 * in));
    auto named = std::make_shared<Chain>();
    named->add("maxpool_conv", chain);
    return named;
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
    Unet(const ModelShape& shape, const ModelSettings& settings, std::int64_t width) {
        down_.push_back(register_module("inc", two_convs(shape.channels, width)));
        for (int i = 0; i < levels; ++i)
            down_.push_back(register_module(fmt::format("down{}", i + 1), down(width << i)));
        for (int i = levels; i > 0; --i)
            up_.push_back(part<Up>(fmt::format("up{}", levels - i + 1), width << i, settings));
        auto chain = std::make_shared<Chain>();
        chain->add<Conv>("conv", ConvShape{width, shape.classes, 1, 1, 1, settings.bias});
        out_ = register_module("outc", chain);
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

std::shared_ptr<Layer> unet(const ModelShape& shape,
                            const ModelSettings& settings,
                            std::int64_t width) {
    check_sides(shape, 1 << levels);
    return std::make_shared<Unet>(shape, settings, width);
}

std::shared_ptr<Classifier> pixel_classifier(const ModelShape& shape,
                                             const ModelSettings& settings) {
    return unet(shape, settings, settings.width > 0 ? settings.width : 64);
}

}  // namespace lockstep::models
