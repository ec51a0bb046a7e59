// SPDX-License-Identifier: Apache-2.0
// Replaces jpeg_decoder.cpp in a build without libjpeg.
#include "image.hpp"

namespace lockstep {

Image decode_jpeg(std::span<const std::byte>) {
    throw NoDecoder("JPEG", "libjpeg");
}

}  // namespace lockstep
