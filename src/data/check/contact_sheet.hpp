// SPDX-License-Identifier: Apache-2.0
// A sheet of several images side by side.
#pragma once

#include "images/image.hpp"
#include "sampled_values.hpp"

namespace lockstep {

/// The order of an image's numbers in a row: `[C, H, W]`, `[H, W, C]`, or `[H, W]`.
enum class PixelOrder { channels_first, channels_last, plane };

/// Draws at most 64 of the rows, eight in a line, each shrunk to at most 96 pixels or enlarged to
/// at least 48, with 2 pixels between them. u8 values stay; other types are scaled from the least
/// value, black, to the largest. Three channels and more are shown as red, green and blue of the
/// first three, else the first as grey. `sample.shape` has as many dimensions as `order` says.
Image contact_sheet(const SampledRows& sample, PixelOrder order);

/// Returns the number of images on it.
std::uint64_t images_on_sheet(const SampledRows& sample);

}  // namespace lockstep
