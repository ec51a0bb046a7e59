// SPDX-License-Identifier: Apache-2.0
// Images that are stored as the bytes of PNG, JPEG, TIFF or PNM files, as rows of pixels.
#pragma once

#include "lockstep/data/sources.hpp"

#include "transform/image.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Decodes one image after another to rows u8 [C, H, W], as the first one or `fit` says.
class EncodedImages {
  public:
    explicit EncodedImages(const ImageFit& fit) : fit_(fit) {}

    /// Returns the row of `content`, which messages call `place`; valid until the next call.
    /// Errors: E237 (it cannot be decoded), E238 (its size or colours differ), E249.
    std::span<const std::byte> decode(std::span<const std::byte> content, const std::string& place);

    /// Returns the shape of a row, once there was one.
    std::vector<std::int64_t> shape() const {
        return {channels_, static_cast<std::int64_t>(size_.height), size_.width};
    }

  private:
    Image fitted(Image image, const std::string& place);

    ImageFit fit_;
    ImageSize size_;
    std::uint32_t channels_ = 0;
    std::string first_;  // the place of the first image
    std::vector<std::byte> row_;
};

}  // namespace lockstep
