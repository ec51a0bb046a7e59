// SPDX-License-Identifier: Apache-2.0
#include "images.hpp"
#include "transform/bound.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

namespace lockstep {
namespace {

using namespace test;

const ImageShape small{3, 12, 9};

TEST(Transform, NormalisesAsTrainingAlwaysDid) {
    const Images images = noise(small, 4);
    std::vector<float> expected;
    const std::size_t plane = 12 * 9;
    for (std::size_t i = 0; i < images.bytes.size(); ++i) {
        const std::size_t c = i / plane % 3;
        const auto mean = static_cast<float>(test::three_means[c] * 255);
        const auto scale = static_cast<float>(test::three_stds[c] * 255);
        expected.push_back((static_cast<float>(images.bytes[i]) - mean) / scale);
    }
    EXPECT_EQ(bits(applied("none", images)), bits(expected));
}

TEST(Transform, DividesBy255OrByOneMeanAndDeviationForAllChannels) {
    const Images images = noise({1, 5, 5}, 1);
    const ImageTransform transform(TransformPipeline{}, images.shape, {}, {});
    const std::vector<float> out = applied(transform, images);
    for (std::size_t i = 0; i < out.size(); ++i)
        EXPECT_EQ(out[i], static_cast<float>(images.bytes[i]) / 255.0f);
    const Images colours = noise({3, 2, 2}, 1);
    const double mean[] = {0.5}, deviation[] = {0.25}, means[] = {0.5, 0.5, 0.5},
                 deviations[] = {0.25, 0.25, 0.25};
    EXPECT_EQ(applied(ImageTransform({}, colours.shape, mean, deviation), colours),
              applied(ImageTransform({}, colours.shape, means, deviations), colours));
}

TEST(Transform, LeavesAChannelThatNeverChangesFinite) {
    Images images = noise({2, 3, 3}, 1);
    std::fill(images.bytes.begin(), images.bytes.begin() + 9, std::uint8_t{51});
    const double means[] = {0.2, 0.5}, stds[] = {0, 0.25};
    const std::vector<float> out = applied(ImageTransform({}, images.shape, means, stds), images);
    for (std::size_t i = 0; i < 9; ++i) EXPECT_EQ(out[i], 0.0F);
    for (const float value : out) EXPECT_TRUE(std::isfinite(value));
}

TEST(Transform, LaysChannelsOutInnermostWhenAsked) {
    for (const int channels : {1, 2, 3, 4})
        for (const char* text :
             {"none", "crop 12x9 pad 2, flip, cutout 3", "blur 3", "flip, rotate 9"}) {
            const Images images = noise({channels, 12, 9}, 3);
            const auto planar = applied(text, images, {1, 2}, PixelLayout::nchw);
            const auto inner = applied(text, images, {1, 2}, PixelLayout::nhwc);
            const auto n = static_cast<std::size_t>(channels);
            for (std::size_t i = 0; i < planar.size(); ++i) {
                const std::size_t x = i % 108, c = i / 108 % n, image = i / 108 / n;
                ASSERT_EQ(planar[i], inner[(image * 108 + x) * n + c]) << text << " " << channels;
            }
        }
}

TEST(Transform, HasIdentities) {
    const Images images = noise(small, 3);
    const std::uint64_t plain = bits(applied("none", images));
    for (const char* text : {"flip 1, flip 1",
                             "flip 0",
                             "crop 12x9",
                             "crop 12x9 pad 0",
                             "centre-crop 12x9",
                             "rotate 0",
                             "resize 12x9",
                             "resize 9",
                             "rotate 0, flip 1, resize 9, flip 1, crop 12x9",
                             "blur 5 0.01-0.01"})  // a Gaussian that narrow has no neighbours
        EXPECT_EQ(bits(applied(text, images)), plain) << text;
}

TEST(Transform, LeavesEvenSurfacesAlone) {
    Images images = noise(small, 2);
    std::ranges::fill(images.bytes, std::uint8_t{201});
    const std::uint64_t plain = bits(applied("none", images));
    for (const char* text : {"blur 3", "blur 11 5-9", "flip", "blur 3, blur 5, crop 12x9"})
        EXPECT_EQ(bits(applied(text, images)), plain) << text;
    const ImageTransform larger = bound("resize 31x17, blur 3", small);
    for (const float value : applied(larger, images))
        EXPECT_TRUE(value == applied("none", images)[0] || value == applied("none", images)[108] ||
                    value == applied("none", images)[216]);
}

TEST(Transform, FlipsEveryRow) {
    const Images images = noise(small, 2);
    const auto plain = applied("none", images), flipped = applied("flip 1", images);
    for (std::size_t i = 0; i < plain.size(); ++i)
        EXPECT_EQ(flipped[i], plain[i / 9 * 9 + 8 - i % 9]);
}

TEST(Transform, CropsAWindowOfThePaddedImage) {
    const Images images = noise({1, 6, 6}, 40);
    const ImageTransform transform = bound("crop 6 pad 2", images.shape);
    const auto plain = applied("none", images), cropped = applied(transform, images);
    const float black = (0.0f - transform.mean()[0]) / transform.scale()[0];
    const auto draws = transform.draw(images.ids, {7, 3});
    for (int i = 0; i < 40; ++i) {
        const StageDraw& draw = draws[static_cast<std::size_t>(i)];
        ASSERT_TRUE(std::abs(draw.y_begin) <= 2 && std::abs(draw.x_begin) <= 2);
        for (int y = 0; y < 6; ++y)
            for (int x = 0; x < 6; ++x) {
                const int from_y = y + draw.y_begin, from_x = x + draw.x_begin;
                const bool is_inside = from_y >= 0 && from_y < 6 && from_x >= 0 && from_x < 6;
                const float expected =
                    is_inside ? plain[static_cast<std::size_t>(i * 36 + from_y * 6 + from_x)]
                              : black;
                EXPECT_EQ(cropped[static_cast<std::size_t>(i * 36 + y * 6 + x)], expected);
            }
    }
}

// As torchvision's CenterCrop where the borders are even.
TEST(Transform, CentreCropKeepsTheMiddle) {
    const Images images = noise({2, 10, 9}, 3);
    const auto plain = applied("none", images), middle = applied("centre-crop 6x5", images);
    ASSERT_EQ(middle.size(), 3u * 2 * 6 * 5);
    for (std::size_t plane = 0; plane < 6; ++plane)
        for (std::size_t y = 0; y < 6; ++y)
            for (std::size_t x = 0; x < 5; ++x)
                EXPECT_EQ(middle[plane * 30 + y * 5 + x], plain[plane * 90 + (y + 2) * 9 + x + 2]);
    EXPECT_EQ(bits(applied("centre-crop 6x5", images, {8, 9})), bits(middle)) << "not random";
}

TEST(Transform, NormalisesByImageNetsStatistics) {
    const Images images = noise(small, 2);
    const auto out = applied("normalise imagenet", images);
    constexpr std::array means = {0.485, 0.456, 0.406}, stds = {0.229, 0.224, 0.225};
    for (std::size_t i = 0; i < out.size(); ++i) {
        const std::size_t c = i / 108 % 3;
        EXPECT_NEAR(out[i], (images.bytes[i] / 255.0 - means[c]) / stds[c], 1e-5);
    }
}

TEST(Transform, RotatesCounterClockwise) {
    Images images = noise({1, 5, 5}, 1);
    std::ranges::fill(images.bytes, std::uint8_t{0});
    images.bytes[2 * 5 + 4] = 255;  // at three o'clock
    const ImageTransform transform(TransformPipeline::parse("rotate 90"), images.shape, {}, {});
    for (std::uint64_t id = 0; id < 50; ++id) {
        images.ids[0] = id;
        const StageDraw draw = transform.draw(images.ids, {7, 3})[0];
        const std::vector<float> out = applied(transform, images);
        const bool is_up = out[0] + out[1] + out[2] + out[3] + out[4] + out[9] >
                           out[20] + out[21] + out[22] + out[23] + out[24] + out[19];
        if (std::abs(draw.sine) > 0.1f) {
            EXPECT_EQ(is_up, draw.sine > 0) << draw.sine;
        }
    }
}

TEST(Transform, CutsOutTheMean) {
    const Images images = noise({3, 8, 8}, 30);
    for (const char* text : {"cutout 4", "cutout 4, flip 1", "cutout 4, crop 8"}) {
        const auto plain = applied("none", images), cut = applied(text, images);
        for (std::size_t i = 0; i < 30; ++i) {
            const auto zeros = std::count(&cut[i * 192], &cut[i * 192] + 192, 0.0f);
            EXPECT_GE(zeros, 3 * 4) << text;
            EXPECT_LE(zeros, 3 * 16) << text;
        }
        EXPECT_NE(bits(plain), bits(cut));
    }
}

const char* const everything =
    "resize 14x11, crop 12x9 pad 2, flip, rotate 25, blur 5, cutout 3, crop 9, flip, normalise";

RC_GTEST_PROP(Transform, DoesNotDependOnBatchesThreadsOrOrder, ()) {
    const auto count = *rc::gen::inRange<std::size_t>(1, 30);
    const auto* text = *rc::gen::element("crop 12x9 pad 4, flip", everything, "book");
    const bool is_book = std::string_view(text) == "book";
    const Images images = noise(is_book ? ImageShape{3, 4, 4} : small, is_book ? 2 : count);
    const ImageTransform transform = bound(text, images.shape);
    const auto layout = *rc::gen::element(PixelLayout::nchw, PixelLayout::nhwc);
    const TransformKey key{*rc::gen::arbitrary<std::uint64_t>(), *rc::gen::inRange(0u, 9u)};
    const auto whole = applied(transform, images, key, layout);
    RC_ASSERT(bits(applied(transform, images, key, layout, *rc::gen::inRange(2, 9))) ==
              bits(whole));
    const std::size_t values = transform.output().values();
    std::vector<float> parts(whole.size());
    for (std::size_t i = images.ids.size(); i-- > 0;)
        transform.apply(images.of(i, 1),
                        std::span(images.ids).subspan(i, 1),
                        key,
                        layout,
                        std::span(parts).subspan(i * values, values));
    RC_ASSERT(bits(parts) == bits(whole));
}

TEST(Transform, DependsOnSeedEpochAndSample) {
    Images images = noise(small, 1);
    const std::uint64_t first = bits(applied(everything, images, {7, 3}));
    EXPECT_NE(bits(applied(everything, images, {8, 3})), first);
    EXPECT_NE(bits(applied(everything, images, {7, 4})), first);
    images.ids[0] = 1;
    EXPECT_NE(bits(applied(everything, images, {7, 3})), first);
}

TEST(Transform, IsTheSameWithEveryInstructionSet) {
    for (const ImageShape& shape : {small, ImageShape{1, 28, 28}, ImageShape{3, 64, 33}})
        for (const char* text :
             {"none", "crop 9 pad 4, flip", everything, "resize 61x59, blur 15"}) {
            const Images images = noise(shape, 5);
            const auto transform = std::make_shared<BoundTransform>(
                TransformPipeline::parse(text), shape, test::three_means, test::three_stds, 255);
            std::vector<std::uint64_t> hashes;
            for (const RowKernels* kernels : row_kernels()) {
                transform->rows = kernels;
                hashes.push_back(
                    bits(applied(ImageTransform(transform), images, {1, 2}, PixelLayout::nhwc)));
            }
            EXPECT_THAT(hashes, testing::Each(hashes.front())) << text;
        }
}

// Pinned: a run resumed with a later version must see the same pixels.
TEST(Transform, IsPinned) {
    const auto hash = [](const char* text, const ImageShape& shape) {
        return hex64(bits(applied(text, noise(shape, 6), {42, 5}, PixelLayout::nhwc)));
    };
    EXPECT_EQ(hash("none", small), "e65ef30372398288");
    EXPECT_EQ(hash("cifar", {3, 32, 32}), "dc8f4801d5a779c1");
    EXPECT_EQ(hash("resize 17x23", small), "197dc668d85c1633");
    EXPECT_EQ(hash("rotate 30", small), "e5feec16d8dc5ccf");
    EXPECT_EQ(hash("blur 5", small), "653beb831f315eb8");
    EXPECT_EQ(hash("cutout 5", small), "0412b019c29c7620");
    EXPECT_EQ(hash("book", {3, 8, 8}), "67d785f555a0e2ff");
    EXPECT_EQ(hash(everything, small), "551e2af240d17033");
}

// What images draw, as a whole: that ranges are used up and evenly.

constexpr std::size_t sample_count = 20'000;

std::vector<StageDraw> draws_of(const char* text,
                                const ImageShape& shape,
                                std::uint64_t epoch = 0) {
    std::vector<std::uint64_t> ids(sample_count);
    std::iota(ids.begin(), ids.end(), 0u);
    return bound(text, shape).draw(ids, {11, epoch});
}

/// Mean of chi-squared over its degrees of freedom: 1 for a fair draw, and for 80 or more degrees
/// beyond 1.6 once in ten thousand times.
double unevenness(const std::map<int, int>& counts, int values) {
    const double expected = static_cast<double>(sample_count) / values;
    double chi_squared = expected * (values - static_cast<double>(counts.size()));
    for (const auto& [value, seen] : counts)
        chi_squared += (seen - expected) * (seen - expected) / expected;
    return chi_squared / (values - 1);
}

TEST(TransformDraws, CropsUseEveryOffsetEvenly) {
    std::map<int, int> places;
    for (const StageDraw& draw : draws_of("crop 32 pad 4", {3, 32, 32}))
        ++places[(draw.y_begin + 4) * 9 + draw.x_begin + 4];
    EXPECT_EQ(places.begin()->first, 0);
    EXPECT_EQ(places.rbegin()->first, 80);
    EXPECT_LT(unevenness(places, 81), 1.6);
}

TEST(TransformDraws, FlipsWithTheProbability) {
    for (const auto& [text, expected] :
         {std::pair{"flip", 0.5}, std::pair{"flip 0.1", 0.1}, std::pair{"flip 0", 0.0}}) {
        double flips = 0;
        for (const StageDraw& draw : draws_of(text, {1, 8, 8})) flips += draw.x_step < 0;
        EXPECT_NEAR(flips / sample_count, expected, 0.015) << text;
    }
}

TEST(TransformDraws, AnglesAreEvenBetweenTheLimits) {
    std::map<int, int> degrees;
    for (const StageDraw& draw : draws_of("rotate 45", {1, 8, 8})) {
        EXPECT_NEAR(draw.cosine * draw.cosine + draw.sine * draw.sine, 1, 1e-6);
        ++degrees[static_cast<int>(
            std::floor(std::atan2(draw.sine, draw.cosine) * 180 / 3.14159265358979))];
    }
    EXPECT_GE(degrees.begin()->first, -45);
    EXPECT_LE(degrees.rbegin()->first, 44);
    EXPECT_LT(unevenness(degrees, 90), 1.6);
}

TEST(TransformDraws, SigmasAreEvenBetweenTheLimits) {
    std::map<int, int> tenths;
    for (const StageDraw& draw : draws_of("blur 5 1-11", {1, 8, 8})) {
        const double ratio = draw.weights[1] / draw.weights[0];  // exp(-3 / (2 sigma^2))
        ++tenths[static_cast<int>(std::sqrt(-1.5 / std::log(ratio)) * 10)];
    }
    EXPECT_GE(tenths.begin()->first, 10);
    EXPECT_LE(tenths.rbegin()->first, 110);
    EXPECT_LT(unevenness(tenths, 100), 1.6);
}

TEST(TransformDraws, BlursWithNormalisedWeights) {
    for (const StageDraw& draw : draws_of("blur 15 7-7", {1, 16, 16})) {
        double outer = 0;
        for (const float weight : draw.weights) outer += 2.0 * weight;
        const double centre = draw.weights[0] / std::exp(-1 / 98.0);
        ASSERT_NEAR(outer + centre, 1, 1e-6);
        ASSERT_NEAR(draw.weights[6] / draw.weights[0], std::exp(-48 / 98.0), 1e-6);
    }
}

TEST(TransformDraws, CutsAroundEveryPixelEvenly) {
    std::map<int, int> corners;
    for (const StageDraw& draw : draws_of("cutout 1", {1, 9, 9})) {
        EXPECT_EQ(draw.cut_bottom - draw.cut_top, 1);
        EXPECT_EQ(draw.cut_right - draw.cut_left, 1);
        ++corners[draw.cut_top * 9 + draw.cut_left];
    }
    EXPECT_LT(unevenness(corners, 81), 1.6);
}

TEST(TransformDraws, StepsAndEpochsAreIndependent) {
    const auto all = draws_of("flip, resize 8x8, flip", {1, 8, 8});
    const auto next = draws_of("flip, resize 8x8, flip", {1, 8, 8}, 1);
    double equal_steps = 0, equal_epochs = 0;
    for (std::size_t i = 0; i < sample_count; ++i) {
        equal_steps += all[3 * i].x_step == all[3 * i + 2].x_step;
        equal_epochs += all[3 * i].x_step == next[3 * i].x_step;
    }
    EXPECT_NEAR(equal_steps / sample_count, 0.5, 0.015);
    EXPECT_NEAR(equal_epochs / sample_count, 0.5, 0.015);
}

TEST(ExactMath, AgreesWithTheLibrary) {
    for (int i = -3600; i <= 3600; ++i) {
        const double radians = i / 10.0 * 3.14159265358979323846 / 180;
        const CosineSine turn = cosine_sine(i / 10.0);
        ASSERT_NEAR(turn.cosine, std::cos(radians), 2e-14) << i;
        ASSERT_NEAR(turn.sine, std::sin(radians), 2e-14) << i;
    }
    EXPECT_EQ(cosine_sine(0).cosine, 1);
    EXPECT_EQ(cosine_sine(0).sine, 0);
    for (double x = -699; x <= 0; x += 0.37)
        ASSERT_NEAR(exponential(x) / std::exp(x), 1, 1e-14) << x;
    EXPECT_EQ(exponential(0), 1);
    EXPECT_EQ(exponential(-1e9), 0);
    for (double x = 1e-300; x < 1e10; x *= 1.37)
        ASSERT_NEAR(logarithm(x), std::log(x), 1e-14 * std::max(1.0, std::abs(std::log(x)))) << x;
    EXPECT_EQ(logarithm(1), 0);
}

}  // namespace
}  // namespace lockstep
