// SPDX-License-Identifier: Apache-2.0
// Images, as the bytes of PNG, JPEG, TIFF or PNM files, become rows of pixels.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/data/sources.hpp"

#include "transform/image.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// No larger file is read.
inline constexpr std::size_t largest_image_file = std::size_t{256} << 20;

/// E214: `path` cannot be packed.
Error not_packable(const fs::path& path, const std::string& why, const std::string& fix);

/// Decodes an image that messages call `place`. Errors: E237 with `fix` (it cannot be decoded),
/// E249.
Image decoded_image(std::span<const std::byte> content,
                    const std::string& place,
                    const std::string& fix);

/// The rows u8 [C, H, W] of images that are like the first one, or as `fit` says.
class ImageRows {
  public:
    ImageRows(const ImageFit& fit, const Image& first, std::string place);

    std::vector<std::int64_t> shape() const { return {channels_, size_.height, size_.width}; }

    /// Writes a row to `out`. Errors: E238 (size or colours are others than the first one's).
    void write(Image image, const std::string& place, std::span<std::byte> out) const;

  private:
    ImageFit fit_;
    ImageSize size_;
    std::uint32_t channels_;
    std::string first_;  // the place of the first image
};

}  // namespace lockstep
