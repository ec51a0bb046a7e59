// SPDX-License-Identifier: Apache-2.0
// The kernels' own source on the host, thread by thread, against the CPU's rows (equal bits), and
// both against definitions written down once more, in double precision.
#include "images.hpp"
#include "transform/kernel_body.hpp"

#include <cmath>
#include <functional>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace lockstep {
namespace {

using test::applied;
using test::bits;
using test::bound;
using test::Images;
using test::noise;

/// Every block and thread of a grid, in an order that no GPU promises.
void for_each_thread(std::int64_t elements, const std::function<void(std::int64_t, int)>& run) {
    for (std::int64_t block = blocks_for(elements); block-- > 0;)
        for (int thread = threads_of_block; thread-- > 0;) run(block, thread);
}

void run_on_host(const StageLaunch& launch) {
    const std::int64_t blocks = blocks_for(pixel::elements_of(launch));
    for_each_thread(pixel::elements_of(launch), [&](std::int64_t block, int thread) {
        pixel::stage_thread(launch, block, thread, blocks, threads_of_block);
    });
}

std::vector<float> by_kernels(const ImageTransform& transform,
                              const Images& images,
                              TransformKey key,
                              PixelLayout layout) {
    const std::size_t count = images.ids.size();
    const std::vector<StageDraw> draws = transform.draw(images.ids, key);
    std::vector<float> first(transform.scratch_values(count)), second(first.size());
    std::vector<float> out(count * transform.output().values(), -99);
    DeviceBatch batch{.images = images.bytes.data(),
                      .draws = draws.data(),
                      .mean = transform.mean().data(),
                      .scale = transform.scale().data(),
                      .scratch = {first.data(), second.data()},
                      .out = out.data(),
                      .layout = layout,
                      .count = static_cast<std::int64_t>(count)};
    for (const StageLaunch& launch : plan_launches(transform, batch)) run_on_host(launch);
    return out;
}

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
        RC_ASSERT(bits(by_kernels(transform, images, key, layout)) ==
                  bits(applied(transform, images, key, layout)));
}

TEST(TransformKernel, GivesTheBitsOfTheCpuForThePresets) {
    for (const char* text : {"none", "cifar", "book"}) {
        const Images images = noise({3, 32, 32}, 2);
        const ImageTransform transform = bound(text, images.shape);
        EXPECT_EQ(bits(by_kernels(transform, images, {5, 6}, PixelLayout::nhwc)),
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
                                        {.images = images.bytes.data(),
                                         .draws = draws.data(),
                                         .mean = transform.mean().data(),
                                         .scale = transform.scale().data(),
                                         .out = out.data(),
                                         .count = 2});
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

}  // namespace
}  // namespace lockstep
