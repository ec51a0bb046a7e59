// SPDX-License-Identifier: Apache-2.0
#include "check/sampled_values.hpp"

#include <cmath>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

template <class Value>
SampledRows rows_of(ElementType type,
                    std::vector<std::int64_t> shape,
                    std::uint64_t rows,
                    const std::vector<Value>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    return {type, std::move(shape), rows, rows, {bytes.begin(), bytes.end()}};
}

// The color of a pixel of tile number `tile`, of tiles of 48 x 48.
std::vector<int> pixel(const Image& sheet, int tile, int y, int x) {
    const int line = 2 + tile / 8 * 50 + y, column = 2 + tile % 8 * 50 + x;
    const auto at = static_cast<std::size_t>(line) * sheet.row_bytes() + 3U * column;
    return {sheet.pixels[at], sheet.pixels[at + 1], sheet.pixels[at + 2]};
}

TEST(ContactSheet, ShowsChannelsWhereverTheyAre) {
    // Two images of 2 x 2 pixels: red counts up from 0, green from 100, blue from 200.
    std::vector<std::uint8_t> first, last;
    for (int image = 0; image < 2; ++image) {
        for (int c = 0; c < 3; ++c)
            for (int p = 0; p < 4; ++p)
                first.push_back(static_cast<std::uint8_t>(100 * c + 4 * image + p));
        for (int p = 0; p < 4; ++p)
            for (int c = 0; c < 3; ++c)
                last.push_back(static_cast<std::uint8_t>(100 * c + 4 * image + p));
    }
    const Image a =
        contact_sheet(rows_of(ElementType::u8, {3, 2, 2}, 2, first), PixelOrder::channels_first);
    const Image b =
        contact_sheet(rows_of(ElementType::u8, {2, 2, 3}, 2, last), PixelOrder::channels_last);
    EXPECT_EQ(a.height, 52u);
    EXPECT_EQ(a.width, 102u);
    EXPECT_EQ(a.pixels, b.pixels);
    EXPECT_EQ(pixel(a, 0, 0, 0), (std::vector<int>{0, 100, 200}));
    EXPECT_EQ(pixel(a, 1, 0, 47), (std::vector<int>{5, 105, 205})) << "each pixel is 24 wide";
    EXPECT_EQ(pixel(a, 1, 24, 0), (std::vector<int>{6, 106, 206}));
    EXPECT_EQ(pixel(a, 0, -1, 0), (std::vector<int>{40, 40, 40})) << "the gap";
}

TEST(ContactSheet, GoesFromBlackToWhiteWhateverTheType) {
    const std::vector<double> values{-1, 0, 1, std::nan("")};
    const Image sheet =
        contact_sheet(rows_of(ElementType::f64, {2, 2}, 1, values), PixelOrder::plane);
    EXPECT_EQ(pixel(sheet, 0, 0, 0), (std::vector<int>{0, 0, 0}));
    EXPECT_EQ(pixel(sheet, 0, 0, 24), (std::vector<int>{128, 128, 128}));
    EXPECT_EQ(pixel(sheet, 0, 24, 0), (std::vector<int>{255, 255, 255}));
    EXPECT_EQ(pixel(sheet, 0, 24, 24), (std::vector<int>{0, 0, 0}));
}

TEST(ContactSheet, ShrinksAndTakesSomeOfMany) {
    const std::vector<std::uint8_t> values(100 * 200 * 100, 9);
    const SampledRows many = rows_of(ElementType::u8, {200, 100}, 100, values);
    EXPECT_EQ(images_on_sheet(many), 64u);
    const Image sheet = contact_sheet(many, PixelOrder::plane);
    EXPECT_EQ(sheet.height, 8 * 98u + 2);
    EXPECT_EQ(sheet.width, 8 * 50u + 2);
}

TEST(ValueSummary, CountsWhatIsNotFiniteApart) {
    const std::vector<float> values{1.5F, -2, HUGE_VALF, std::nanf("")};
    const ValueSummary summary = summary_of(rows_of(ElementType::f32, {4}, 1, values));
    EXPECT_EQ(range_text(summary), "-2 .. 1.5, mean -0.25, 2 not finite");
    EXPECT_EQ(range_text({}), "no finite number");
    EXPECT_TRUE(whole_counts(rows_of(ElementType::f32, {4}, 1, values), 1000).empty());
    const std::vector<std::int32_t> whole{-1, 3, 3};
    EXPECT_THAT(whole_counts(rows_of(ElementType::i32, {}, 3, whole), 1000),
                testing::ElementsAre(testing::Pair(-1, 1), testing::Pair(3, 2)));
    std::vector<std::int32_t> ids(1001);
    std::iota(ids.begin(), ids.end(), 0);
    EXPECT_TRUE(whole_counts(rows_of(ElementType::i32, {}, 1001, ids), 1000).empty());
}

}  // namespace
}  // namespace lockstep
