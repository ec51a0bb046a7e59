// SPDX-License-Identifier: Apache-2.0
// Replaces tiff_decoder.cpp in a build without libtiff.
#include "image.hpp"

namespace lockstep {

bool reads_tiff() {
    return false;
}

Image decode_tiff(std::span<const std::byte>, Pixels) {
    throw NoDecoder("TIFF", "libtiff");
}

std::uint32_t tiff_channel_bits(std::span<const std::byte>) {
    return 8;
}

}  // namespace lockstep
