// SPDX-License-Identifier: Apache-2.0
#include "image_rows.hpp"

#include "lockstep/core/log.hpp"

#include <utility>

#include <fmt/format.h>

namespace lockstep {

Error not_packable(const fs::path& path, const std::string& why, const std::string& fix) {
    return Error("E214", fmt::format("'{}' cannot be packed", path.string()), why, fix);
}

Image decoded_image(std::span<const std::byte> content,
                    const std::string& place,
                    const std::string& fix) {
    const std::string what = fmt::format("image {} cannot be decoded", place);
    try {
        return decode_image(content);
    } catch (const BadImage& bad) {
        throw Error("E237", what, printable(bad.what()), fix);
    } catch (const NoDecoder& none) {
        throw Error("E249", what, none.what(), none.fix());
    }
}

ImageRows::ImageRows(const ImageFit& fit, const Image& first, std::string place)
    : fit_(fit),
      size_(fit.resize.value_or(ImageSize{first.height, first.width})),
      channels_(fit.color == Color::rgb    ? 3
                : fit.color == Color::gray ? 1
                                           : first.channels),
      first_(std::move(place)) {}

void ImageRows::write(Image image, const std::string& place, std::span<std::byte> out) const {
    const ImageSize size{image.height, image.width};
    check(fit_.resize || size == size_, [&] {
        return Error(
            "E238",
            fmt::format("image {} is {} x {}", place, size.height, size.width),
            fmt::format("the first one, {}, is {} x {}", first_, size_.height, size_.width),
            "give --resize HEIGHTxWIDTH");
    });
    check(fit_.color != Color::as_first || image.channels <= channels_, [&] {
        return Error("E238",
                     fmt::format("image {} has colours", place),
                     fmt::format("the first one, {}, is grey", first_),
                     "give --color rgb or --color gray");
    });
    image = with_channels(std::move(image), channels_);
    if (size != size_) image = resized(image, size_.height, size_.width);
    const std::size_t channels = image.channels, plane = out.size() / channels;
    for (std::size_t c = 0; c < channels; ++c)
        for (std::size_t p = 0; p < plane; ++p)
            out[c * plane + p] = static_cast<std::byte>(image.pixels[p * channels + c]);
}

}  // namespace lockstep
