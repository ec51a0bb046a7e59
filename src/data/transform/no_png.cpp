// SPDX-License-Identifier: Apache-2.0
// Replaces png_decoder.cpp in a build without libpng.
#include "image.hpp"

namespace lockstep {

Image decode_png(std::span<const std::byte>, Pixels) {
    throw NoDecoder("PNG", "libpng");
}

}  // namespace lockstep
