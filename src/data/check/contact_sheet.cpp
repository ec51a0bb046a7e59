// SPDX-License-Identifier: Apache-2.0
#include "contact_sheet.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

constexpr std::uint64_t most_images = 64, in_line = 8;
constexpr std::uint32_t largest_side = 96, least_side = 48, gap = 2;
constexpr std::uint8_t background = 40;

// The place of a pixel's value in a row.
struct Plan {
    std::size_t channels = 1, height = 1, width = 1;
    std::size_t channel_step = 0, line_step = 1, pixel_step = 1;
};

Plan plan_of(const std::vector<std::int64_t>& shape, PixelOrder order) {
    const auto at = [&](std::size_t i) { return static_cast<std::size_t>(shape.at(i)); };
    switch (order) {
        case PixelOrder::channels_first:
            return {at(0), at(1), at(2), at(1) * at(2), at(2), 1};
        case PixelOrder::channels_last:
            return {at(2), at(0), at(1), 1, at(1) * at(2), at(2)};
        case PixelOrder::plane:
            break;
    }
    return {1, at(0), at(1), 0, at(1), 1};
}

// From what is black and what is white.
class Shades {
  public:
    explicit Shades(const SampledRows& sample) {
        if (sample.type == ElementType::u8) return;
        const ValueSummary summary = summary_of(sample);
        least_ = summary.least;
        scale_ = summary.most > summary.least ? 255 / (summary.most - summary.least) : 0;
    }
    std::uint8_t of(double value) const {
        if (!std::isfinite(value)) return 0;
        return static_cast<std::uint8_t>(std::clamp((value - least_) * scale_ + 0.5, 0.0, 255.0));
    }

  private:
    double least_ = 0, scale_ = 1;
};

Image image_of(const SampledRows& sample,
               std::uint64_t row,
               const Plan& plan,
               const Shades& shade) {
    const std::size_t shown = plan.channels >= 3 ? 3 : 1;
    Image image{static_cast<std::uint32_t>(plan.height),
                static_cast<std::uint32_t>(plan.width),
                static_cast<std::uint32_t>(shown),
                {}};
    image.pixels.reserve(plan.height * plan.width * shown);
    const std::span<const std::byte> values = sample.row(row);
    for (std::size_t y = 0; y < plan.height; ++y)
        for (std::size_t x = 0; x < plan.width; ++x)
            for (std::size_t c = 0; c < shown; ++c) {
                const std::size_t place =
                    c * plan.channel_step + y * plan.line_step + x * plan.pixel_step;
                image.pixels.push_back(shade.of(value_at(sample.type, values, place)));
            }
    return image;
}

// Each pixel `factor` times in both directions.
Image enlarged(const Image& image, std::uint32_t factor) {
    Image out{image.height * factor, image.width * factor, image.channels, {}};
    out.pixels.reserve(out.height * out.row_bytes());
    for (std::uint32_t y = 0; y < out.height; ++y)
        for (std::uint32_t x = 0; x < out.width; ++x)
            for (std::uint32_t c = 0; c < image.channels; ++c)
                out.pixels.push_back(image.pixels[(y / factor) * image.row_bytes() +
                                                  (x / factor) * image.channels + c]);
    return out;
}

Image as_tile(const Image& image) {
    const std::uint32_t longest = std::max(image.height, image.width);
    if (longest < least_side) return enlarged(image, (least_side + longest - 1) / longest);
    if (longest <= largest_side) return image;
    const auto shrunk = [&](std::uint32_t side) {
        return std::max<std::uint32_t>(
            static_cast<std::uint32_t>(std::uint64_t{side} * largest_side / longest), 1);
    };
    return resized(image, shrunk(image.height), shrunk(image.width));
}

void put(const Image& tile, Image& sheet, std::uint64_t top, std::uint64_t left) {
    for (std::uint32_t y = 0; y < tile.height; ++y)
        std::copy_n(tile.pixels.begin() + static_cast<std::ptrdiff_t>(y * tile.row_bytes()),
                    tile.row_bytes(),
                    sheet.pixels.begin() +
                        static_cast<std::ptrdiff_t>((top + y) * sheet.row_bytes() + left * 3));
}

}  // namespace

std::uint64_t images_on_sheet(const SampledRows& sample) {
    return std::min(sample.rows, most_images);
}

Image contact_sheet(const SampledRows& sample, PixelOrder order) {
    const Plan plan = plan_of(sample.shape, order);
    const Shades shades(sample);
    std::vector<Image> tiles;
    const std::uint64_t count = images_on_sheet(sample);
    for (std::uint64_t i = 0; i < count; ++i)
        tiles.push_back(
            with_channels(as_tile(image_of(sample, i * sample.rows / count, plan, shades)), 3));
    const std::uint64_t columns = std::min(count, in_line), lines = (count - 1) / in_line + 1;
    const std::uint64_t height = tiles[0].height + gap, width = tiles[0].width + gap;
    Image sheet{static_cast<std::uint32_t>(lines * height + gap),
                static_cast<std::uint32_t>(columns * width + gap),
                3,
                {}};
    sheet.pixels.assign(sheet.height * sheet.row_bytes(), background);
    for (std::uint64_t i = 0; i < count; ++i)
        put(tiles[i], sheet, gap + i / in_line * height, gap + i % in_line * width);
    return sheet;
}

}  // namespace lockstep
