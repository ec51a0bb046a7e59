// SPDX-License-Identifier: Apache-2.0
// The models that make_model() knows besides its own small ones. Errors of each: E217.
#pragma once

#include "lockstep/train/model.hpp"

#include <memory>

namespace lockstep::models {

std::shared_ptr<Classifier> resnet18(const ModelShape& shape, const ModelSettings& settings);
std::shared_ptr<Classifier> resnet34(const ModelShape& shape, const ModelSettings& settings);
std::shared_ptr<Classifier> resnet50(const ModelShape& shape, const ModelSettings& settings);
std::shared_ptr<Classifier> densenet121(const ModelShape& shape, const ModelSettings& settings);
std::shared_ptr<Classifier> efficientnet_b0(const ModelShape& shape, const ModelSettings& settings);
std::shared_ptr<Classifier> efficientnet_b7(const ModelShape& shape, const ModelSettings& settings);
std::shared_ptr<Classifier> vit_b_16(const ModelShape& shape, const ModelSettings& settings);

/// "gpt": tokens -> logits of each token's next; of 6 layers and heads, 384 wide, unless said.
std::shared_ptr<Classifier> token_decoder(const ModelShape& shape, const ModelSettings& settings);

/// "unet": images -> logits of each pixel's class; first 64 channels, unless said.
std::shared_ptr<Classifier> pixel_classifier(const ModelShape& shape,
                                             const ModelSettings& settings);

}  // namespace lockstep::models
