// SPDX-License-Identifier: Apache-2.0
// Replaces blosc_decoder.cpp in a build without c-blosc.
#include "codec.hpp"

namespace lockstep {

bool reads_blosc() {
    return false;
}

// Not reached: is_known_filter() keeps such chains out before anything is read.
bool decode_blosc(std::span<const std::byte>, std::span<std::byte>) {
    return false;
}

}  // namespace lockstep
