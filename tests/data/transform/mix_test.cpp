// SPDX-License-Identifier: Apache-2.0
#include "images.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace lockstep {
namespace {

using test::applied;
using test::bits;
using test::bound;
using test::Images;
using test::noise;

const ImageShape mixed_shape{3, 10, 8};

std::vector<MixRow> rows_of(const char* text, std::size_t count, TransformKey key = {1, 2}) {
    const Images images = noise(mixed_shape, count);
    return bound(text, mixed_shape).mix_rows(images.ids, key);
}

std::vector<double> lambdas(const char* text) {
    std::vector<double> values;
    for (const MixRow& row : rows_of(text, 20'000)) values.push_back(double{row.lambda});
    return values;
}

TEST(Mix, IsNothingWithoutAStepThatMixes) {
    EXPECT_TRUE(rows_of("flip, cutout 2", 5).empty());
    EXPECT_TRUE(rows_of("mixup 1", 0).empty());
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
        const std::vector<double> values = lambdas(text);
        for (const double value : values) {
            sum += value;
            squares += (value - 0.5) * (value - 0.5);
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

TEST(Mix, GivesTwoLabelsAndAShare) {
    const std::vector<std::int64_t> labels = {4, 5, 6};
    const MixRow rows[] = {
        {.partner = 2, .lambda = 0.25f}, {.partner = 1}, {.partner = 0, .lambda = 0}};
    const MixedLabels mixed = mix_labels(labels, rows);
    EXPECT_EQ(mixed.first, labels);
    EXPECT_THAT(mixed.second, testing::ElementsAre(6, 5, 4));
    EXPECT_THAT(mixed.lambda, testing::ElementsAre(0.25f, 1.0f, 0.0f));
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
