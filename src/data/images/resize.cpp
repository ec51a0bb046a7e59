// SPDX-License-Identifier: Apache-2.0
#include "image.hpp"

#include <algorithm>

namespace lockstep {
namespace {

constexpr int precision = 22;  // bits after the point, as Pillow's for 8-bit channels

// Which inputs make up one output, and how much of each.
struct Taps {
    std::size_t first = 0;
    std::vector<std::int32_t> weights;
};

double triangle(double x) {
    const double distance = x < 0 ? -x : x;
    return distance < 1 ? 1 - distance : 0;
}

std::vector<Taps> taps_of(std::uint32_t in, std::uint32_t out) {
    const double scale = static_cast<double>(in) / out, support = std::max(scale, 1.0);
    std::vector<Taps> all(out);
    for (std::uint32_t i = 0; i < out; ++i) {
        const double centre = (i + 0.5) * scale;
        const int first = std::max(static_cast<int>(centre - support + 0.5), 0);
        const int last = std::min(static_cast<int>(centre + support + 0.5), static_cast<int>(in));
        std::vector<double> weights;
        double sum = 0;
        for (int x = first; x < last; ++x) {
            weights.push_back(triangle((x - centre + 0.5) * (1 / support)));
            sum += weights.back();
        }
        all[i].first = static_cast<std::size_t>(first);
        for (const double weight : weights)
            all[i].weights.push_back(
                static_cast<std::int32_t>(0.5 + weight / sum * (1 << precision)));
    }
    return all;
}

// One output of a line of pixels that are `stride` apart.
std::uint8_t blend(const std::uint8_t* line, std::size_t stride, const Taps& taps) {
    std::int64_t sum = 1 << (precision - 1);
    const std::uint8_t* pixel = line + taps.first * stride;
    for (const std::int32_t weight : taps.weights) {
        sum += std::int64_t{*pixel} * weight;
        pixel += stride;
    }
    return static_cast<std::uint8_t>(std::min<std::int64_t>(sum >> precision, 255));
}

Image resized_across(const Image& image, std::uint32_t width) {
    const std::vector<Taps> taps = taps_of(image.width, width);
    Image out{image.height, width, image.channels, {}};
    out.pixels.resize(out.height * out.row_bytes());
    std::uint8_t* to = out.pixels.data();
    for (std::uint32_t y = 0; y < out.height; ++y)
        for (std::uint32_t x = 0; x < width; ++x)
            for (std::uint32_t c = 0; c < out.channels; ++c)
                *to++ =
                    blend(image.pixels.data() + y * image.row_bytes() + c, image.channels, taps[x]);
    return out;
}

Image resized_down(const Image& image, std::uint32_t height) {
    const std::vector<Taps> taps = taps_of(image.height, height);
    Image out{height, image.width, image.channels, {}};
    const std::size_t row = out.row_bytes();
    out.pixels.resize(height * row);
    std::uint8_t* to = out.pixels.data();
    for (std::uint32_t y = 0; y < height; ++y)
        for (std::size_t x = 0; x < row; ++x) *to++ = blend(image.pixels.data() + x, row, taps[y]);
    return out;
}

}  // namespace

Image resized(const Image& image, std::uint32_t height, std::uint32_t width) {
    Image out = image.width == width ? image : resized_across(image, width);
    return image.height == height ? out : resized_down(out, height);
}

}  // namespace lockstep
