// SPDX-License-Identifier: Apache-2.0
// The models that make_model() knows besides its own small ones. Errors of each: E217.
#pragma once

#include "lockstep/train/model.hpp"

#include "model/layers.hpp"

#include <cstdint>
#include <memory>

namespace lockstep::models {

std::shared_ptr<Classifier> resnet18(const ModelShape& shape, const ModelSettings& settings);
std::shared_ptr<Classifier> resnet34(const ModelShape& shape, const ModelSettings& settings);
std::shared_ptr<Classifier> resnet50(const ModelShape& shape, const ModelSettings& settings);
std::shared_ptr<Classifier> densenet121(const ModelShape& shape, const ModelSettings& settings);
std::shared_ptr<Classifier> efficientnet_b0(const ModelShape& shape, const ModelSettings& settings);
std::shared_ptr<Classifier> efficientnet_b7(const ModelShape& shape, const ModelSettings& settings);
std::shared_ptr<Classifier> vit_b_16(const ModelShape& shape, const ModelSettings& settings);

/// Makes "gpt": tokens -> logits of each token's next; by default 6 layers and heads, 384 wide.
std::shared_ptr<Classifier> token_decoder(const ModelShape& shape, const ModelSettings& settings);

/// Makes "unet": images -> logits of each pixel's class; by default 64 channels in the first level.
std::shared_ptr<Classifier> pixel_classifier(const ModelShape& shape,
                                             const ModelSettings& settings);

/// A decoder transformer over tokens, with the names and shapes of GPT-2's parameters (Radford et
/// al., "Language Models are Unsupervised Multitask Learners", 2019). The default is the smallest
/// GPT-2: 124,439,808 parameters.
struct GptShape {
    std::int64_t vocabulary = 50257;
    std::int64_t context = 1024;  ///< largest length of a sequence
    std::int64_t layers = 12, heads = 12, width = 768;
    double dropout = 0.1;
};

/// Makes the model: i64 [n, T] with T <= context -> logits f32 [n, T, vocabulary] of each token's
/// next. Errors: E217 a width that heads do not divide; of forward(), a sequence that is too long.
std::shared_ptr<Layer> gpt(const GptShape& shape, const ModelSettings& settings);

/// Makes a U-Net with batch norm: one logit for each class and pixel (Ronneberger et al.,
/// https://arxiv.org/abs/1505.04597). [n, C, H, W] -> logits [n, classes, H, W]; the first level
/// has `width` channels, the last 16 times as many. Errors: E217 sides of less than 16 pixels.
std::shared_ptr<Layer> unet(const ModelShape& shape,
                            const ModelSettings& settings,
                            std::int64_t width = 64);

}  // namespace lockstep::models
