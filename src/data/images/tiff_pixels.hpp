// SPDX-License-Identifier: Apache-2.0
// Pixels as TIFF stores them, made bytes: samples of 1 to 16 bits, palettes, orientations.
#pragma once

#include "image.hpp"

#include <array>
#include <cstdint>
#include <vector>

namespace lockstep {

/// How a page's rows or tiles hold its pixels.
struct TiffSamples {
    std::uint32_t bits = 8;       ///< 1, 2, 4, 8, or 16 in this machine's byte order; upper first
    std::uint32_t per_pixel = 1;  ///< beside each other in a row; those beyond colours are dropped
    bool is_inverted = false;     ///< 0 is white
    std::vector<std::array<std::uint8_t, 3>> palette;  ///< if not empty, samples are places in it

    std::size_t row_bytes(std::uint32_t pixels) const {
        return (std::size_t{pixels} * per_pixel * bits + 7) / 8;
    }
};

/// Where pixels of a row belong.
struct PixelRun {
    std::uint32_t y = 0, x = 0, pixels = 0;
    std::uint32_t first_channel = 0, channels = 0;  ///< that the row has
};

/// Of 16 bits the upper 8 are kept, less than 8 are stretched to 0 to 255. `row` has row_bytes() of
/// the run's pixels, which lie within the image.
void put_row(const TiffSamples& samples, const std::uint8_t* row, PixelRun run, Image& image);

/// The image as it is to be seen; `orientation` is TIFF's tag: 1 (as stored) to 8.
Image oriented(Image stored, std::uint32_t orientation);

}  // namespace lockstep
