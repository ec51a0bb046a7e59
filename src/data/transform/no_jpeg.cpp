// SPDX-License-Identifier: Apache-2.0
// In the place of jpeg_decoder.cpp where a build does without libjpeg.
#include "image.hpp"

namespace lockstep {

Image decode_jpeg(std::span<const std::byte>) {
    throw NoDecoder("JPEG", "libjpeg");
}

}  // namespace lockstep
