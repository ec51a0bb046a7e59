// SPDX-License-Identifier: Apache-2.0
// The text of transforms; masks that move with images, and images of numbers.
#include "lockstep/core/split.hpp"
#include "lockstep/data/transform.hpp"

#include "images.hpp"
#include "support/unit.hpp"

#include <rapidcheck/gtest.h>

namespace lockstep {
namespace {

using namespace test;

std::string canonical(std::string_view text) {
    return TransformPipeline::parse(text).text();
}

TEST(TransformText, WritesEveryDefaultOut) {
    const std::pair<std::string_view, std::string_view> cases[] = {
        {"none", "normalise"},
        {"normalise", "normalise"},
        {"normalize", "normalise"},
        {"  flip ", "flip 0.5, normalise"},
        {"flip 0.25", "flip 0.25, normalise"},
        {"flip -0", "flip 0, normalise"},
        {"resize 255", "resize 255, normalise"},
        {"resize 32x32", "resize 32x32, normalise"},
        {"crop 28", "crop 28 pad 0, normalise"},
        {"crop 32x24 pad 4", "crop 32x24 pad 4, normalise"},
        {"center-crop 224x224", "centre-crop 224, normalise"},
        {"rotate 15.0", "rotate 15, normalise"},
        {"blur 3", "blur 3 0.1-2, normalise"},
        {"blur 5 1.5-1.5", "blur 5 1.5-1.5, normalise"},
        {"cutout 8,cutout 8", "cutout 8, cutout 8, normalise"},
        {"mixup 0.2, flip", "flip 0.5, normalise, mixup 0.2"},
        {"normalise imagenet, cutmix 1", "normalise imagenet, cutmix 1"},
        {"cifar, cutout 8, mixup 1", "crop 32 pad 4, flip 0.5, cutout 8, normalise, mixup 1"},
        {"resize 32x32, crop 32 pad 4, flip, rotate 15, blur 3 0.1-2.0, cutout 8, mixup 0.2, "
         "normalise",
         "resize 32x32, crop 32 pad 4, flip 0.5, rotate 15, blur 3 0.1-2, cutout 8, normalise, "
         "mixup 0.2"},
    };
    for (const auto& [text, expected] : cases) EXPECT_EQ(canonical(text), expected) << text;
}

TEST(TransformText, IsPlainByDefaultAndHasTheBooksPipeline) {
    EXPECT_EQ(TransformPipeline{}, TransformPipeline::parse("none"));
    EXPECT_FALSE(TransformPipeline{}.mixes_labels());
    EXPECT_TRUE(TransformPipeline::parse("mixup 1").mixes_labels());
    EXPECT_TRUE(TransformPipeline::parse("cutmix 1, normalise").mixes_labels());
    EXPECT_EQ(canonical("book"),
              "resize 255, centre-crop 224, flip 0.5, rotate 20, blur 3 0.1-2, normalise imagenet");
    EXPECT_EQ(TransformPipeline::parse("book").output_shape({3, 32, 32}),
              (ImageShape{3, 224, 224}));
}

std::string any_step() {
    const auto number = [](int least, int most) {
        return std::to_string(*rc::gen::inRange(least, most));
    };
    switch (*rc::gen::inRange(0, 7)) {
        case 0:
            return "resize " + number(1, 300) + "x" + number(1, 300);
        case 1:
            return "crop " + number(1, 300) + " pad " + number(0, 9);
        case 2:
            return "centre-crop " + number(1, 300) + "x" + number(1, 300);
        case 3:
            return "flip 0." + number(0, 100);
        case 4:
            return "rotate " + number(0, 180) + "." + number(0, 1000);
        case 5:
            return "blur 5 0." + number(1, 9) + "-" + number(1, 100);
        default:
            return "cutout " + number(1, 300);
    }
}

RC_GTEST_PROP(TransformText, IsReadBackAsItIsWritten, ()) {
    std::string text = "none";
    for (int steps = *rc::gen::inRange(0, 6); steps > 0; --steps) text += ", " + any_step();
    if (*rc::gen::arbitrary<bool>()) text += ", mixup 0." + std::to_string(*rc::gen::inRange(1, 9));
    const TransformPipeline pipeline = TransformPipeline::parse(text);
    RC_ASSERT(TransformPipeline::parse(pipeline.text()) == pipeline);
    RC_ASSERT(canonical(pipeline.text()) == pipeline.text());
}

RC_GTEST_PROP(TransformText, IsReadOrRefusedWhateverItIs, ()) {
    const auto text = *rc::gen::container<std::string>(
        rc::gen::elementOf(std::string("abcefilnoprtux0123456789.-, \tcropflipblur\xff")));
    const std::string code = caught_code([&] { TransformPipeline::parse(text); });
    RC_ASSERT(code.empty() || code == "E247" || code == "E102");
}

TEST(TransformText, RefusesWhatItCannotRead) {
    const std::pair<std::string_view, std::string_view> cases[] = {
        {"", "a step is missing"},
        {" ", "a step is missing"},
        {"flip,", "a step is missing"},
        {",flip", "a step is missing"},
        {"flip,,crop 32", "a step is missing"},
        {"flop", "did you mean 'flip'"},
        {"cifarr", "did you mean 'cifar'"},
        {"book 3", "there is no transform 'book'"},
        {"Flip", "there is no transform 'Flip'"},
        {"xyzzyqwert", "the steps and presets are: resize, crop"},
        {"crop", "a side or HEIGHTxWIDTH is missing"},
        {"crop x", "is no whole number"},
        {"crop 32x", "is no whole number"},
        {"crop x32", "is no whole number"},
        {"crop 32x32x32", "is no whole number"},
        {"crop 32.5", "is no whole number"},
        {"crop 32 4", "a word too many"},
        {"crop 32 pad", "the padding is missing"},
        {"crop 32 pad four", "is no whole number"},
        {"resize", "is missing"},
        {"flip often", "write 'flip [P]'"},
        {"flip often", "is no number"},
        {"flip crop 32 pad 4", "write 'flip, crop 32 pad 4'"},
        {"flip nan", "is no number"},
        {"flip 0.5 0.5", "a word too many"},
        {"rotate", "is missing"},
        {"blur", "is missing"},
        {"blur 4", "must be odd"},
        {"blur 3 1", "is not sigma FROM-TO"},
        {"blur 3 -1", "is not sigma FROM-TO"},
        {"blur 3 1-", "is no number"},
        {"blur 3 2-1", "descends"},
        {"blur 3 1-2-3", "is no number"},
        {"normalise cifar", "a word too many"},
        {"mixup", "is missing"},
        {"normalise, flip", "comes behind 'normalise'"},
        {"normalise, normalise", "comes behind 'normalise'"},
        {"book, flip", "comes behind 'normalise'"},
        {"mixup 1, cutmix 1", "mix twice"},
        {"mixup 1, mixup 1", "mix twice"},
    };
    for (const auto& [text, part] : cases) {
        const auto parse = [&] { TransformPipeline::parse(text); };
        EXPECT_EQ(caught_code(parse), "E247") << text;
        EXPECT_THAT(caught_text(parse), HasSubstr(std::string(part))) << text;
    }
}

TEST(TransformText, RefusesNumbersOutOfRange) {
    for (const std::string_view text :
         {"crop 0",         "crop -1",          "crop 8193",  "crop 99999999999999",
          "crop 32 pad -1", "crop 32 pad 1025", "resize 0",   "resize 32x0",
          "flip 1.1",       "flip -0.1",        "rotate -1",  "rotate 181",
          "blur 1",         "blur 17",          "blur 3 0-1", "blur 3 1-101",
          "cutout 0",       "mixup 0",          "mixup 5",    "cutmix 0.001"}) {
        const auto parse = [&] { TransformPipeline::parse(text); };
        EXPECT_EQ(caught_code(parse), "E102") << text;
        EXPECT_THAT(caught_text(parse), HasSubstr("it must be between")) << text;
    }
}

TEST(TransformText, KeepsForEvaluationWhatIsNotRandom) {
    const auto evaluation = [](std::string_view text) {
        return TransformPipeline::parse(text).evaluation().text();
    };
    EXPECT_EQ(evaluation("none"), "normalise");
    EXPECT_EQ(evaluation("cifar, rotate 5, blur 3, cutout 8, mixup 1"),
              "centre-crop 32, normalise");
    EXPECT_EQ(evaluation("book"), "resize 255, centre-crop 224, normalise imagenet");
}

TEST(TransformShape, FollowsTheSteps) {
    const auto shape = [](std::string_view text, const ImageShape& input) {
        return TransformPipeline::parse(text).output_shape(input);
    };
    EXPECT_EQ(shape("none", {1, 28, 28}), (ImageShape{1, 28, 28}));
    EXPECT_EQ(shape("cifar", {1, 28, 28}), (ImageShape{1, 32, 32}));
    EXPECT_EQ(shape("resize 20", {3, 30, 60}), (ImageShape{3, 20, 40}));
    EXPECT_EQ(shape("resize 20", {3, 60, 30}), (ImageShape{3, 40, 20}));
    EXPECT_EQ(shape("resize 20x30", {3, 60, 30}), (ImageShape{3, 20, 30}));
    EXPECT_EQ(shape("centre-crop 5x7, rotate 9, mixup 1", {2, 9, 9}), (ImageShape{2, 5, 7}));
}

TEST(TransformShape, RefusesWhatDoesNotFit) {
    const std::pair<std::string_view, std::string_view> cases[] = {
        {"crop 32", "32 x 32 cannot be cut from 28 x 28"},
        {"crop 40 pad 4", "cannot be cut from 36 x 36"},
        {"centre-crop 29x28", "cannot be cut from 28 x 28"},
        {"resize 3x3, blur 7", "reach across"},
        {"normalise imagenet", "three channels"},
        {"resize 1x8192, resize 8192", "would exceed 8192"},
    };
    for (const auto& [text, part] : cases) {
        const auto pipeline = TransformPipeline::parse(text);
        const auto shape = [&] { (void)pipeline.output_shape({1, 28, 28}); };
        EXPECT_EQ(caught_code(shape), "E248") << text;
        EXPECT_THAT(caught_text(shape), HasSubstr(std::string(part))) << text;
        EXPECT_EQ(caught_code([&] { ImageTransform(pipeline, {1, 28, 28}, {}, {}); }), "E248");
    }
}

TEST(TransformHelp, NamesEveryStepAndPreset) {
    for (const std::string& name : split("resize|crop|centre-crop|flip|rotate|blur|cutout|"
                                         "normalise|mixup|cutmix|none|cifar|book",
                                         '|'))
        EXPECT_THAT(transform_help(), HasSubstr("\n  " + std::string(name) + " ")) << name;
}

// Masks that move with images, and images of numbers.

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

TEST(NumberTransform, GivesTheBitsOfBytesAndHasMeanAndDeviationInItsOwnUnit) {
    const Images images = noise({3, 12, 9}, 7);
    const std::vector<float> numbers(images.bytes.begin(), images.bytes.end());
    for (const char* text : pipelines)
        for (const PixelLayout layout : {PixelLayout::nchw, PixelLayout::nhwc}) {
            const ImageTransform transform = bound(text, images.shape);
            std::vector<float> out(images.ids.size() * transform.output().values());
            transform.apply(std::span<const float>(numbers), images.ids, {7, 3}, layout, out);
            EXPECT_EQ(bits(out), bits(applied(transform, images, {7, 3}, layout))) << text;
        }
    const double mean[] = {250}, deviation[] = {50};
    const ImageTransform unit({}, {1, 1, 2}, mean, deviation, 1);
    const std::vector<float> own{300, -50};
    std::vector<float> scaled(2);
    unit.apply(
        std::span<const float>(own), std::vector<std::uint64_t>{4}, {}, PixelLayout::nchw, scaled);
    EXPECT_EQ(scaled, (std::vector<float>{1, -6}));
}

TEST(NumberTransform, GivesTheBitsOfTheCpuInKernels) {
    const Images images = noise({3, 12, 9}, 7);
    std::vector<float> numbers(images.bytes.begin(), images.bytes.end());
    for (float& number : numbers) number = number * 100 - 7;
    for (const char* text : pipelines) {
        const ImageTransform transform = bound(text, images.shape);
        const std::vector<float> out = by_kernels(
            transform, {.floats = numbers.data()}, images.ids, {7, 3}, PixelLayout::nhwc);
        std::vector<float> expected(out.size());
        transform.apply(
            std::span<const float>(numbers), images.ids, {7, 3}, PixelLayout::nhwc, expected);
        EXPECT_EQ(bits(out), bits(expected)) << text;
    }
}

}  // namespace
}  // namespace lockstep
