// SPDX-License-Identifier: Apache-2.0
// Masks that move with images, and images of numbers.
#include "images.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using namespace test;

/// Large areas of 0 and of 255, of one channel.
Images blobs(int height, int width, std::size_t count) {
    Images images = noise({1, height, width}, count);
    for (std::size_t i = 0; i < images.bytes.size(); ++i) {
        const auto pixel = static_cast<int>(i % images.shape.values());
        const int y = pixel / width, x = pixel % width;
        const bool is_inside =
            (y / 5 + x / 7 + static_cast<int>(i / images.shape.values())) % 3 == 0;
        images.bytes[i] = is_inside ? 255 : 0;
    }
    return images;
}

std::vector<std::int64_t> moved(const ImageTransform& transform,
                                const Images& images,
                                std::int64_t outside,
                                TransformKey key = {7, 3}) {
    std::vector<std::int64_t> masks;
    for (const std::uint8_t byte : images.bytes) masks.push_back(byte == 0 ? 0 : 1);
    const ImageShape& out = transform.output();
    std::vector<std::int64_t> result(images.ids.size() * out.values() /
                                     static_cast<std::size_t>(out.channels));
    transform.move_masks(masks, images.ids, key, outside, result);
    return result;
}

// Where an image stays 0 or 1, all pixels that it was blended of were so: the mask's nearest is
// one.
TEST(MaskTransform, MovesAsImagesDo) {
    const Images images = blobs(23, 31, 12);
    for (const char* text : {"none",
                             "flip",
                             "crop 20x24 pad 6",
                             "flip 1, centre-crop 11x30",
                             "resize 40x17",
                             "rotate 45",
                             "resize 12, crop 10 pad 2, flip, rotate 180"}) {
        const ImageTransform transform(TransformPipeline::parse(text), images.shape, {}, {});
        const std::vector<float> pixels = applied(transform, images);
        const std::vector<std::int64_t> masks = moved(transform, images, 0);
        ASSERT_EQ(masks.size(), pixels.size()) << text;
        std::size_t plain = 0, wrong = 0;
        for (std::size_t i = 0; i < pixels.size(); ++i) {
            if (pixels[i] != 0 && pixels[i] != 1) continue;
            ++plain;
            wrong += static_cast<float>(masks[i]) == pixels[i] ? 0 : 1;
        }
        EXPECT_EQ(wrong, 0U) << text;
        EXPECT_GT(plain, pixels.size() / 3) << text;
    }
}

TEST(MaskTransform, FillsWhatComesFromOutside) {
    Images images = noise({3, 6, 6}, 5);
    std::ranges::fill(images.bytes, std::uint8_t{255});
    for (const char* text : {"crop 9 pad 4", "rotate 180, cutout 3", "crop 9 pad 4, blur 3"}) {
        const ImageTransform transform(TransformPipeline::parse(text), images.shape, {}, {});
        Images one_channel = images;
        one_channel.bytes.resize(images.bytes.size() / 3);
        const std::vector<std::int64_t> masks = moved(transform, one_channel, 77);
        const std::size_t outside = static_cast<std::size_t>(std::ranges::count(masks, 77));
        EXPECT_GT(outside, 0U) << text;
        EXPECT_EQ(outside + static_cast<std::size_t>(std::ranges::count(masks, 1)), masks.size())
            << text;
    }
}

TEST(MaskTransform, DependsOnSampleAndKeyAlone) {
    const Images images = blobs(12, 12, 6);
    const ImageTransform transform = bound("crop 12 pad 3, flip, rotate 30", images.shape);
    const std::vector<std::int64_t> all = moved(transform, images, 0);
    const std::size_t pixels = images.shape.values();
    for (std::size_t i = 0; i < 6; ++i) {
        const auto bytes = images.of(i, 1);
        const Images one{images.shape, {bytes.begin(), bytes.end()}, {images.ids[i]}};
        const auto begin = all.begin() + static_cast<std::ptrdiff_t>(i * pixels);
        EXPECT_EQ(moved(transform, one, 0),
                  std::vector<std::int64_t>(begin, begin + static_cast<std::ptrdiff_t>(pixels)));
    }
    EXPECT_NE(moved(transform, images, 0, {7, 4}), all);
    EXPECT_NE(moved(transform, images, 0, {8, 3}), all);
}

constexpr const char* pipelines[] = {
    "none", "flip, crop 10x8 pad 2", "resize 15x7, cutout 4", "rotate 30, blur 3", "blur 5, flip"};

TEST(NumberTransform, GivesTheBitsOfBytes) {
    const Images images = noise({3, 12, 9}, 7);
    const std::vector<float> numbers(images.bytes.begin(), images.bytes.end());
    for (const char* text : pipelines)
        for (const PixelLayout layout : {PixelLayout::nchw, PixelLayout::nhwc}) {
            const ImageTransform transform = bound(text, images.shape);
            std::vector<float> out(images.ids.size() * transform.output().values());
            transform.apply(std::span<const float>(numbers), images.ids, {7, 3}, layout, out);
            EXPECT_EQ(bits(out), bits(applied(transform, images, {7, 3}, layout))) << text;
        }
}

TEST(NumberTransform, HasMeanAndDeviationInItsOwnUnit) {
    const double mean[] = {250}, deviation[] = {50};
    const ImageTransform transform({}, {1, 1, 2}, mean, deviation, 1);
    const std::vector<float> numbers{300, -50};
    std::vector<float> out(2);
    transform.apply(
        std::span<const float>(numbers), std::vector<std::uint64_t>{4}, {}, PixelLayout::nchw, out);
    EXPECT_EQ(out, (std::vector<float>{1, -6}));
}

TEST(NumberTransform, GivesTheBitsOfTheCpuInKernels) {
    const Images images = noise({3, 12, 9}, 7);
    std::vector<float> numbers(images.bytes.begin(), images.bytes.end());
    for (float& number : numbers) number = number * 100 - 7;
    for (const char* text : pipelines) {
        const ImageTransform transform = bound(text, images.shape);
        const std::vector<float> out = by_kernels(
            transform, {.numbers = numbers.data()}, images.ids, {7, 3}, PixelLayout::nhwc);
        std::vector<float> expected(out.size());
        transform.apply(
            std::span<const float>(numbers), images.ids, {7, 3}, PixelLayout::nhwc, expected);
        EXPECT_EQ(bits(out), bits(expected)) << text;
    }
}

}  // namespace
}  // namespace lockstep
