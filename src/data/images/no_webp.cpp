// SPDX-License-Identifier: Apache-2.0
// In the place of webp_decoder.cpp where a build does without libwebp.
#include "image.hpp"

namespace lockstep {

bool reads_webp() {
    return false;
}

Image decode_webp(std::span<const std::byte>) {
    throw NoDecoder("WEBP", "libwebp");
}

}  // namespace lockstep
