// SPDX-License-Identifier: Apache-2.0
#include "tiff_pixels.hpp"

#include <algorithm>
#include <cstring>

namespace lockstep {
namespace {

std::uint32_t sample_at(const std::uint8_t* row, std::size_t index, std::uint32_t bits) {
    if (bits == 8) return row[index];
    if (bits == 16) {
        std::uint16_t sample = 0;
        std::memcpy(&sample, row + 2 * index, sizeof sample);
        return sample;
    }
    const std::size_t first_bit = index * bits;
    return (row[first_bit / 8] >> (8 - bits - first_bit % 8)) & ((1u << bits) - 1);
}

std::uint8_t byte_of(std::uint32_t sample, std::uint32_t bits) {
    if (bits == 16) return static_cast<std::uint8_t>(sample >> 8);
    return static_cast<std::uint8_t>(bits == 8 ? sample : sample * 255 / ((1u << bits) - 1));
}

}  // namespace

void put_row(const TiffSamples& samples, const std::uint8_t* row, PixelRun run, Image& image) {
    const std::uint8_t flip = samples.is_inverted ? 0xff : 0;
    std::uint8_t* out =
        image.pixels.data() + (std::size_t{run.y} * image.width + run.x) * image.channels;
    for (std::size_t i = 0; i < run.pixels; ++i, out += image.channels) {
        const std::size_t first = i * samples.per_pixel;
        if (!samples.palette.empty()) {
            std::ranges::copy(samples.palette[sample_at(row, first, samples.bits)], out);
            continue;
        }
        for (std::uint32_t c = 0; c < run.channels; ++c)
            out[run.first_channel + c] =
                byte_of(sample_at(row, first + c, samples.bits), samples.bits) ^ flip;
    }
}

// The tag says at which sides of what is to be seen the first row and the first column lie: from 5
// on the first row is at the left or right.
Image oriented(Image stored, std::uint32_t orientation) {
    if (orientation <= 1 || orientation > 8) return stored;
    const bool swaps = orientation >= 5;
    const bool flips_rows =
        orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    const bool flips_columns =
        orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
    Image seen = stored;
    if (swaps) std::swap(seen.height, seen.width);
    std::uint8_t* out = seen.pixels.data();
    for (std::size_t y = 0; y < seen.height; ++y)
        for (std::size_t x = 0; x < seen.width; ++x, out += seen.channels) {
            const std::size_t row = swaps ? x : y, column = swaps ? y : x;
            const std::size_t from_row = flips_rows ? stored.height - 1 - row : row;
            const std::size_t from_column = flips_columns ? stored.width - 1 - column : column;
            std::copy_n(stored.pixels.begin() +
                            static_cast<std::ptrdiff_t>((from_row * stored.width + from_column) *
                                                        stored.channels),
                        stored.channels,
                        out);
        }
    return seen;
}

}  // namespace lockstep
