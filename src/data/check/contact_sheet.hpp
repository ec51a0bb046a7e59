// SPDX-License-Identifier: Apache-2.0
// Some images side by side.
#pragma once

#include "sampled_values.hpp"
#include "transform/image.hpp"

namespace lockstep {

/// How the numbers of a row are an image: `[C, H, W]`, `[H, W, C]`, or `[H, W]`.
enum class PixelOrder { channels_first, channels_last, plane };

/// At most 64 of the rows, eight in a line, each shrunk to at most 96 pixels or enlarged to at
/// least 48, with 2 pixels between them. u8 as they are, other types from the least value, black,
/// to the largest; three channels and more as red, green and blue of the first three, else the
/// first as grey. `sample.shape` has as many dimensions as `order` says.
Image contact_sheet(const SampledRows& sample, PixelOrder order);

/// How many images that shows.
std::uint64_t images_on_sheet(const SampledRows& sample);

}  // namespace lockstep
