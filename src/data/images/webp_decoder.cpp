// SPDX-License-Identifier: Apache-2.0
#include "image.hpp"

#include <new>

#include <webp/decode.h>

namespace lockstep {
namespace {

const std::uint8_t* data_of(std::span<const std::byte> content) {
    return reinterpret_cast<const std::uint8_t*>(content.data());
}

// libwebp decodes what it has of a file, and sees no end that is missing in padding.
void check_length(std::span<const std::byte> content) {
    std::uint64_t bytes = 8;
    for (std::size_t i = 0; i < 4; ++i)
        bytes += std::to_integer<std::uint64_t>(content[4 + i]) << (8 * i);
    if (content.size() < bytes) throw BadImage("it is cut short");
}

void check_status(VP8StatusCode status) {
    switch (status) {
        case VP8_STATUS_OK:
            return;
        case VP8_STATUS_OUT_OF_MEMORY:
            throw std::bad_alloc();
        case VP8_STATUS_SUSPENDED:
        case VP8_STATUS_NOT_ENOUGH_DATA:
            throw BadImage("it is cut short");
        case VP8_STATUS_UNSUPPORTED_FEATURE:
            throw BadImage("it uses what libwebp does not read");
        default:
            throw BadImage("libwebp finds it damaged");
    }
}

}  // namespace

bool reads_webp() {
    return true;
}

Image decode_webp(std::span<const std::byte> content) {
    WebPDecoderConfig config;
    if (WebPInitDecoderConfig(&config) == 0) throw BadImage("libwebp is of another version");
    check_length(content);
    check_status(WebPGetFeatures(data_of(content), content.size(), &config.input));
    if (config.input.has_animation != 0)
        throw BadImage("it is animated; files of one image can be packed");
    Image image{static_cast<std::uint32_t>(config.input.height),
                static_cast<std::uint32_t>(config.input.width),
                3,
                {}};
    check_dimensions(image.height, image.width);
    image.pixels.resize(image.height * image.row_bytes());
    config.output.colorspace = MODE_RGB;  // without transparency
    config.output.is_external_memory = 1;
    config.output.u.RGBA = {
        image.pixels.data(), static_cast<int>(image.row_bytes()), image.pixels.size()};
    const VP8StatusCode status = WebPDecode(data_of(content), content.size(), &config);
    WebPFreeDecBuffer(&config.output);
    check_status(status);
    return image;
}

}  // namespace lockstep
