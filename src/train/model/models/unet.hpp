// SPDX-License-Identifier: Apache-2.0
// A U-Net with batch norm: one logit for each class and pixel (Ronneberger et al.,
// https://arxiv.org/abs/1505.04597).
#pragma once

#include "model/models/layers.hpp"

#include <cstdint>
#include <memory>

namespace lockstep::models {

/// [n, C, H, W] -> logits [n, classes, H, W]; the first level has `width` channels, the last 16
/// times as many. Errors: E217 sides of less than 16 pixels.
std::shared_ptr<Layer> unet(const ModelShape& shape,
                            const ModelSettings& settings,
                            std::int64_t width = 64);

}  // namespace lockstep::models
