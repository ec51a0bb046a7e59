// SPDX-License-Identifier: Apache-2.0
// In the place of png_decoder.cpp where a build does without libpng.
#include "image.hpp"

namespace lockstep {

Image decode_png(std::span<const std::byte>) {
    throw NoDecoder("PNG", "libpng");
}

}  // namespace lockstep
