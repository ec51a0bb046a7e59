// SPDX-License-Identifier: Apache-2.0
// The kernels' own source on the host, thread by thread, against the CPU's rows (equal bits), and
// both against definitions written down once more, in double precision.
#include "images.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

namespace lockstep {
namespace {

using namespace test;

std::string any_pipeline() {
    std::string text = "none";
    const std::array<const char*, 10> steps = {"flip",
                                               "crop 9x7",
                                               "crop 13x14 pad 3",
                                               "rotate 180",
                                               "rotate 20",
                                               "blur 3",
                                               "blur 7 0.5-3",
                                               "cutout 4",
                                               "resize 20x15",
                                               "resize 11x13"};
    for (int count = *rc::gen::inRange(0, 5); count > 0; --count)
        text += std::string(", ") + *rc::gen::elementOf(steps);
    return text;
}

bool fits(const std::string& text, const ImageShape& shape) {
    try {
        (void)TransformPipeline::parse(text).output_shape(shape);
        return true;
    } catch (const std::exception&) {
        return false;
    }
}

RC_GTEST_PROP(TransformKernel, GivesTheBitsOfTheCpu, ()) {
    const ImageShape shape{
        *rc::gen::inRange(1, 5), *rc::gen::inRange(8, 20), *rc::gen::inRange(8, 20)};
    const std::string text = any_pipeline();
    RC_PRE(fits(text, shape));
    const Images images = noise(shape, 3);
    const ImageTransform transform = [&] {
        const std::vector<double> mean(static_cast<std::size_t>(shape.channels), 0.3);
        const std::vector<double> std(static_cast<std::size_t>(shape.channels), 0.2);
        return ImageTransform(TransformPipeline::parse(text), shape, mean, std);
    }();
    const TransformKey key{*rc::gen::arbitrary<std::uint64_t>(), 1};
    for (const PixelLayout layout : {PixelLayout::nchw, PixelLayout::nhwc})
        RC_ASSERT(
            bits(by_kernels(transform, {.bytes = images.bytes.data()}, images.ids, key, layout)) ==
            bits(applied(transform, images, key, layout)));
}

TEST(TransformKernel, GivesTheBitsOfTheCpuForThePresets) {
    for (const char* text : {"none", "cifar", "book"}) {
        const Images images = noise({3, 32, 32}, 2);
        const ImageTransform transform = bound(text, images.shape);
        EXPECT_EQ(
            bits(by_kernels(
                transform, {.bytes = images.bytes.data()}, images.ids, {5, 6}, PixelLayout::nhwc)),
            bits(applied(transform, images, {5, 6}, PixelLayout::nhwc)))
            << text;
    }
}

TEST(TransformKernel, MixesAsTheCpuDoes) {
    for (const char* text : {"mixup 0.4", "cutmix 1"})
        for (const PixelLayout layout : {PixelLayout::nchw, PixelLayout::nhwc}) {
            const Images images = noise({3, 9, 8}, 17);
            const ImageTransform transform = bound(text, images.shape);
            std::vector<float> mixed = applied(transform, images, {1, 2}, layout);
            const std::vector<float> before = mixed;
            std::vector<float> by_kernel(mixed.size());
            const auto rows = transform.mix_rows(images.ids, {1, 2});
            const MixLaunch launch{
                before.data(), by_kernel.data(), rows.data(), 3, 9, 8, layout, 17};
            const std::int64_t elements = pixel::elements_of(launch);
            for_each_thread(elements, [&](std::int64_t block, int thread) {
                pixel::mix_thread(launch, block, thread, blocks_for(elements), threads_of_block);
            });
            transform.mix(mixed, rows, layout, 3);
            EXPECT_EQ(bits(by_kernel), bits(mixed)) << text;
        }
}

TEST(TransformKernel, StridesOverMoreElementsThanThreads) {
    EXPECT_EQ(blocks_for(0), 1);
    EXPECT_EQ(blocks_for(257), 2);
    EXPECT_EQ(blocks_for(std::int64_t{1} << 40), most_blocks_of_grid);
    const Images images = noise({1, 10, 10}, 2);
    const ImageTransform transform = bound("none", images.shape);
    const auto draws = transform.draw(images.ids, {});
    std::vector<float> out(200);
    const auto launches = plan_launches(transform,
                                        {.bytes = images.bytes.data(),
                                         .out = out.data(),
                                         .draws = draws.data(),
                                         .mean = transform.mean().data(),
                                         .scale = transform.scale().data(),
                                         .images = 2});
    for (int block = 0; block < 3; ++block)
        for (int thread = 0; thread < 7; ++thread)
            pixel::stage_thread(launches[0], block, thread, 3, 7);
    EXPECT_EQ(bits(out), bits(applied(transform, images)));
}

// The definitions once more: a function from pixels to values for each step, in doubles.
using Surface = std::function<double(int, int)>;

double bilinear(const Surface& of, double y, double x) {
    const int top = static_cast<int>(std::floor(y)), left = static_cast<int>(std::floor(x));
    const double dy = y - top, dx = x - left;
    return (1 - dy) * ((1 - dx) * of(top, left) + dx * of(top, left + 1)) +
           dy * ((1 - dx) * of(top + 1, left) + dx * of(top + 1, left + 1));
}

Surface image_of(const Images& images, std::size_t plane) {
    const auto height = images.shape.height, width = images.shape.width;
    const std::size_t first = plane * static_cast<std::size_t>(height * width);
    return [&images, first, width](int y, int x) {
        return static_cast<double>(images.bytes[first + static_cast<std::size_t>(y * width + x)]);
    };
}

void expect_near(const char* text,
                 const Images& images,
                 const std::function<Surface(const Surface&, const StageDraw&)>& step) {
    const ImageTransform transform(TransformPipeline::parse(text), images.shape, {}, {});
    const std::vector<float> out = applied(transform, images);
    const auto draws = transform.draw(images.ids, {7, 3});
    const ImageShape& shape = transform.output();
    const auto channels = static_cast<std::size_t>(shape.channels);
    std::size_t at = 0;
    for (std::size_t plane = 0; plane < images.ids.size() * channels; ++plane) {
        const Surface result = step(image_of(images, plane), draws[plane / channels]);
        for (int y = 0; y < shape.height; ++y)
            for (int x = 0; x < shape.width; ++x, ++at)
                ASSERT_NEAR(out[at], result(y, x) / 255, 1e-4) << text << " " << y << " " << x;
    }
}

TEST(TransformReference, ResizesAsDefined) {
    for (const auto& [text, height, width] :
         {std::tuple{"resize 30x41", 30, 41}, std::tuple{"resize 7x5", 7, 5}}) {
        const Images images = noise({2, 12, 17}, 3);
        expect_near(text, images, [&, h = height, w = width](const Surface& in, const StageDraw&) {
            const Surface held = [in](int y, int x) {
                return in(std::clamp(y, 0, 11), std::clamp(x, 0, 16));
            };
            return [held, h, w](int y, int x) {
                return bilinear(held, (y + 0.5) * 12 / h - 0.5, (x + 0.5) * 17 / w - 0.5);
            };
        });
    }
}

TEST(TransformReference, RotatesAsDefined) {
    const Images images = noise({2, 12, 17}, 12);
    expect_near("rotate 180", images, [](const Surface& in, const StageDraw& draw) {
        const Surface held = [in](int y, int x) {
            return y < 0 || y > 11 || x < 0 || x > 16 ? 0 : in(y, x);
        };
        const double angle = std::atan2(double{draw.sine}, double{draw.cosine});
        return [held, angle](int y, int x) {
            const double dy = y - 5.5, dx = x - 8.0;
            return bilinear(held,
                            5.5 + std::sin(angle) * dx + std::cos(angle) * dy,
                            8.0 + std::cos(angle) * dx - std::sin(angle) * dy);
        };
    });
}

TEST(TransformReference, BlursAsDefined) {
    const Images images = noise({2, 12, 17}, 6);
    expect_near("blur 7 0.8-3", images, [](const Surface& in, const StageDraw& draw) {
        const auto mirror = [](int at, int size) {
            return at < 0 ? -at : at >= size ? 2 * size - 2 - at : at;
        };
        std::array<double, 7> weights;
        const double sigma_squared = -1.5 / std::log(double{draw.weights[1]} / draw.weights[0]);
        double sum = 0;
        for (int i = -3; i <= 3; ++i)
            sum += weights[static_cast<std::size_t>(i + 3)] =
                std::exp(-i * i / 2.0 / sigma_squared);
        return [=](int y, int x) {
            double value = 0;
            for (int i = -3; i <= 3; ++i)
                for (int j = -3; j <= 3; ++j)
                    value += weights[static_cast<std::size_t>(i + 3)] *
                             weights[static_cast<std::size_t>(j + 3)] / sum / sum *
                             in(mirror(y + i, 12), mirror(x + j, 17));
            return value;
        };
    });
}

const ImageShape mixed_shape{3, 10, 8};

std::vector<MixRow> rows_of(const char* text, std::size_t count, TransformKey key = {1, 2}) {
    const Images images = noise(mixed_shape, count);
    return bound(text, mixed_shape).mix_rows(images.ids, key);
}

RC_GTEST_PROP(Mix, PairsRowsByAPermutation, ()) {
    const auto count = *rc::gen::inRange<std::size_t>(1, 70);
    std::set<std::uint32_t> partners;
    for (const MixRow& row : rows_of("mixup 0.3", count)) {
        RC_ASSERT(row.partner < count);
        RC_ASSERT(row.lambda >= 0.0f && row.lambda <= 1.0f);
        partners.insert(row.partner);
    }
    RC_ASSERT(partners.size() == count);
}

TEST(Mix, DependsOnTheLeafsSamplesAndTheKey) {
    const ImageTransform transform = bound("mixup 0.3", mixed_shape);
    const Images images = noise(mixed_shape, 16);
    const auto partners = [&](std::vector<std::uint64_t> ids, TransformKey key) {
        std::vector<float> all;
        for (const MixRow& row : transform.mix_rows(ids, key)) {
            all.push_back(static_cast<float>(row.partner));
            all.push_back(row.lambda);
        }
        return all;
    };
    const auto first = partners(images.ids, {1, 2});
    EXPECT_EQ(partners(images.ids, {1, 2}), first);
    EXPECT_NE(partners(images.ids, {2, 2}), first);
    EXPECT_NE(partners(images.ids, {1, 3}), first);
    std::vector<std::uint64_t> others = images.ids;
    std::ranges::reverse(others);
    EXPECT_NE(partners(others, {1, 2}), first);
}

TEST(Mix, SharesAreBetaDistributed) {
    for (const auto& [text, alpha] : {std::pair{"mixup 0.01", 0.01},
                                      std::pair{"mixup 0.2", 0.2},
                                      std::pair{"mixup 1", 1.0},
                                      std::pair{"mixup 3", 3.0}}) {
        double sum = 0, squares = 0;
        for (const MixRow& row : rows_of(text, 20'000)) {
            sum += double{row.lambda};
            squares += (double{row.lambda} - 0.5) * (double{row.lambda} - 0.5);
        }
        EXPECT_NEAR(sum / 20'000, 0.5, 0.015) << text;
        EXPECT_NEAR(squares / 20'000 * 4 * (2 * alpha + 1), 1, 0.03) << text;
    }
}

TEST(Mix, BoxesLeaveTheShareThatTheyName) {
    double sum = 0;
    std::set<int> tops, lefts;
    for (const MixRow& row : rows_of("cutmix 1", 20'000)) {
        ASSERT_TRUE(0 <= row.top && row.top <= row.bottom && row.bottom <= 10);
        ASSERT_TRUE(0 <= row.left && row.left <= row.right && row.right <= 8);
        const double area = (row.bottom - row.top) * (row.right - row.left);
        ASSERT_EQ(row.lambda, static_cast<float>(1 - area / 80));
        sum += double{row.lambda};
        tops.insert(row.top);
        lefts.insert(row.left);
    }
    EXPECT_GT(sum / 20'000, 0.5);  // borders cut boxes, sides are rounded down
    EXPECT_LT(sum / 20'000, 0.8);
    EXPECT_EQ(tops.size(), 10u);
    EXPECT_EQ(lefts.size(), 8u);
}

TEST(Mix, BlendsImagesInPlaceWhateverTheThreads) {
    const Images images = noise(mixed_shape, 9);
    const ImageTransform transform = bound("flip, mixup 0.4", mixed_shape);
    const std::vector<float> before = applied(transform, images);
    const auto rows = transform.mix_rows(images.ids, {1, 2});
    std::vector<float> expected(before.size());
    for (std::size_t i = 0; i < before.size(); ++i) {
        const MixRow& row = rows[i / 240];
        const float partner = before[row.partner * 240 + i % 240];
        expected[i] = before[i] + (1.0f - row.lambda) * (partner - before[i]);
    }
    for (const int threads : {1, 2, 5}) {
        std::vector<float> mixed = before;
        transform.mix(mixed, rows, PixelLayout::nchw, threads);
        EXPECT_EQ(bits(mixed), bits(expected));
    }
}

TEST(Mix, PastesBoxes) {
    const Images images = noise(mixed_shape, 9);
    const ImageTransform transform = bound("cutmix 1", mixed_shape);
    const std::vector<float> before = applied(transform, images, {1, 2}, PixelLayout::nhwc);
    std::vector<float> mixed = before;
    const auto rows = transform.mix_rows(images.ids, {1, 2});
    transform.mix(mixed, rows, PixelLayout::nhwc);
    for (std::size_t i = 0; i < mixed.size(); ++i) {
        const MixRow& row = rows[i / 240];
        const int y = static_cast<int>(i % 240 / 24), x = static_cast<int>(i % 24 / 3);
        const bool is_pasted = y >= row.top && y < row.bottom && x >= row.left && x < row.right;
        ASSERT_EQ(mixed[i], is_pasted ? before[row.partner * 240 + i % 240] : before[i]);
    }
}

TEST(Mix, GivesTwoLabelsAndAShareOrNothingWithoutAStepThatMixes) {
    const std::vector<std::int64_t> labels = {4, 5, 6};
    const MixRow rows[] = {
        {.partner = 2, .lambda = 0.25f}, {.partner = 1}, {.partner = 0, .lambda = 0}};
    const MixedLabels mixed = mix_labels(labels, rows);
    EXPECT_EQ(mixed.first, labels);
    EXPECT_THAT(mixed.second, testing::ElementsAre(6, 5, 4));
    EXPECT_THAT(mixed.lambda, testing::ElementsAre(0.25f, 1.0f, 0.0f));
    EXPECT_TRUE(rows_of("flip, cutout 2", 5).empty());
    EXPECT_TRUE(rows_of("mixup 1", 0).empty());
}

TEST(Mix, KeepsMaskedRowsOutOfIt) {
    const Images images = noise(mixed_shape, 12);
    const ImageTransform transform = bound("mixup 1", mixed_shape);
    const auto all = transform.mix_rows(images.ids, {1, 2});
    std::vector<std::uint8_t> valid(12, 1);
    valid[3] = 0;
    const auto rows = transform.mix_rows(images.ids, {1, 2}, valid);
    for (std::size_t i = 0; i < 12; ++i) {
        const bool is_touched = i == 3 || all[i].partner == 3;
        EXPECT_EQ(rows[i].partner, is_touched ? i : all[i].partner);
        EXPECT_EQ(rows[i].lambda, is_touched ? 1.0f : all[i].lambda);
    }
}

}  // namespace
}  // namespace lockstep
