// SPDX-License-Identifier: Apache-2.0
#include "encoded_images.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"

#include <utility>

#include <fmt/format.h>

namespace lockstep {
namespace {

Image decoded_image(std::span<const std::byte> content, const std::string& place) {
    const std::string what = fmt::format("image in {} cannot be decoded", place);
    try {
        return decode_image(content);
    } catch (const BadImage& bad) {
        throw Error("E237",
                    what,
                    printable(bad.what()),
                    "leave that row out, or write it anew as a PNG or JPEG");
    } catch (const NoDecoder& none) {
        throw Error("E249", what, none.what(), none.fix());
    }
}

}  // namespace

std::span<const std::byte> EncodedImages::decode(std::span<const std::byte> content,
                                                 const std::string& place) {
    const Image image = fitted(decoded_image(content, place), place);
    const std::size_t channels = image.channels, plane = image.pixels.size() / channels;
    row_.resize(image.pixels.size());
    for (std::size_t c = 0; c < channels; ++c)
        for (std::size_t p = 0; p < plane; ++p)
            row_[c * plane + p] = static_cast<std::byte>(image.pixels[p * channels + c]);
    return row_;
}

Image EncodedImages::fitted(Image image, const std::string& place) {
    const ImageSize size{image.height, image.width};
    if (first_.empty()) {
        first_ = place;
        size_ = fit_.resize.value_or(size);
        channels_ = fit_.color == Color::rgb ? 3 : fit_.color == Color::gray ? 1 : image.channels;
    }
    check(fit_.resize || size == size_, [&] {
        return Error(
            "E238",
            fmt::format("image in {} is {} x {}", place, size.height, size.width),
            fmt::format("the first one, in {}, is {} x {}", first_, size_.height, size_.width),
            "give --resize HEIGHTxWIDTH");
    });
    check(fit_.color != Color::as_first || image.channels <= channels_, [&] {
        return Error("E238",
                     fmt::format("image in {} has colours", place),
                     fmt::format("the first one, in {}, is grey", first_),
                     "give --color rgb or --color gray");
    });
    image = with_channels(std::move(image), channels_);
    return size == size_ ? image : resized(image, size_.height, size_.width);
}

}  // namespace lockstep
