// SPDX-License-Identifier: Apache-2.0
// libFuzzer: whatever bytes an image is, it is refused, or has the pixels that its size says. What
// is Lockstep's own is watched by the sanitizers; libpng, libjpeg and libtiff are as installed.
#include "transform/image.hpp"

#include <cstdlib>

namespace lockstep {
namespace {

constexpr std::size_t most_resized_bytes = 1 << 16;  // of more nothing is learnt but patience

void must(bool holds) {
    if (!holds) std::abort();
}

void check_image(const Image& image) {
    must(image.height >= 1 && image.width >= 1);
    must(image.channels == 1 || image.channels == 3);
    must(image.pixels.size() == image.height * image.row_bytes());
}

void decode(std::span<const std::byte> content) {
    must(channel_bits(content) < 65536);
    try {
        const Image image = decode_image(content);
        check_image(image);
        if (image.pixels.size() > most_resized_bytes) return;
        for (const std::uint32_t channels : {1u, 3u}) {
            const Image changed = with_channels(image, channels);
            must(changed.channels == channels);
            check_image(changed);
            check_image(resized(changed, 7, 5));
        }
    } catch (const BadImage&) {
    } catch (const NoDecoder&) {
    }
}

}  // namespace
}  // namespace lockstep

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    lockstep::decode(std::as_bytes(std::span(data, size)));
    return 0;
}
