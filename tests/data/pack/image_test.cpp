// SPDX-License-Identifier: Apache-2.0
#include "transform/image.hpp"

#include "lockstep/core/hash.hpp"

#include "pictures.hpp"
#include "support/unit.hpp"

#include <zlib.h>

namespace lockstep {
namespace {

using test::decoded;
using test::jpeg_text;
using test::picture;
using test::png_text;
using test::pnm_text;
using test::refusal;

int largest_difference(const Image& a, const Image& b) {
    int largest = 0;
    for (std::size_t i = 0; i < a.pixels.size(); ++i)
        largest = std::max(largest, std::abs(a.pixels[i] - b.pixels[i]));
    return largest;
}

TEST(Image, OfPngAndPnmIsExact) {
    for (const std::uint32_t channels : {1u, 3u}) {
        const Image image = picture(7, 5, channels);
        for (const std::string& text : {png_text(image), pnm_text(image)})
            EXPECT_EQ(decoded(text), image);
    }
}

TEST(Image, OfJpegIsNear) {
    for (const std::uint32_t channels : {1u, 3u}) {
        const Image image = picture(33, 20, channels), back = decoded(jpeg_text(image));
        ASSERT_EQ(back.channels, channels);
        ASSERT_EQ(back.pixels.size(), image.pixels.size());
        EXPECT_LE(largest_difference(back, image), 6);
    }
    EXPECT_LE(
        largest_difference(decoded(jpeg_text(picture(16, 16, 3), JCS_RGB)), picture(16, 16, 3)), 6);
}

TEST(Image, OfOtherPngKindsIsMadePlain) {
    const Image palette = decoded(png_text(1, 2, PNG_COLOR_TYPE_PALETTE, 8, {"\x01\x00", 2}));
    EXPECT_THAT(palette.pixels, ElementsAre(200, 100, 50, 10, 20, 30));
    const Image bits = decoded(png_text(1, 3, PNG_COLOR_TYPE_GRAY, 1, "\xa0"));
    EXPECT_THAT(bits.pixels, ElementsAre(255, 0, 255));
    const Image clear =
        decoded(png_text(1, 1, PNG_COLOR_TYPE_RGB_ALPHA, 8, {"\x01\x02\x03\x00", 4}));
    EXPECT_THAT(clear.pixels, ElementsAre(1, 2, 3));
    const Image grey =
        decoded(png_text(1, 2, PNG_COLOR_TYPE_GRAY_ALPHA, 8, {"\x09\x00\x08\xff", 4}));
    EXPECT_THAT(grey.pixels, ElementsAre(9, 8));
    const Image image = picture(9, 9, 3);
    const std::string pixels(image.pixels.begin(), image.pixels.end());
    EXPECT_EQ(decoded(png_text(9, 9, PNG_COLOR_TYPE_RGB, 8, pixels, PNG_INTERLACE_ADAM7)), image);
}

TEST(Image, StretchesPnmOfFewerValuesAndKeepsTheUpperBitsOf16) {
    EXPECT_THAT(decoded({"P5 3 1 2\n\x00\x01\x02", 12}).pixels, ElementsAre(0, 128, 255));
    const std::string grey = png_text(1, 2, PNG_COLOR_TYPE_GRAY, 16, "abcd");
    EXPECT_THAT(decoded(grey).pixels, ElementsAre('a', 'c'));
    EXPECT_EQ(channel_bits(bytes_of(grey)), 16u);
    EXPECT_THAT(decoded(png_text(1, 1, PNG_COLOR_TYPE_RGB, 16, "abcdef")).pixels,
                ElementsAre('a', 'c', 'e'));
}

TEST(Image, IsRefusedWhereItWouldLoseSomethingOrIsNotKnown) {
    EXPECT_THAT(refusal(jpeg_text(picture(8, 8, 4))), HasSubstr("CMYK"));
    EXPECT_THAT(refusal(jpeg_text(picture(8, 8, 4), JCS_YCCK)), HasSubstr("CMYK"));
    EXPECT_THAT(refusal("P5 1 1 65535\nab"), HasSubstr("largest value is 65535"));
    EXPECT_THAT(refusal("GIF89a"), HasSubstr("begins neither as PNG,"));
    EXPECT_THAT(refusal(""), HasSubstr("begins neither as PNG,"));
    EXPECT_THAT(refusal("P5"), HasSubstr("number is missing"));
}

TEST(Image, RefusesSizesThatLie) {
    EXPECT_THAT(refusal("P6 99999999 99999999 255\n"), HasSubstr("99999999 x 99999999 pixels"));
    EXPECT_THAT(refusal("P5 0 5 255\n"), HasSubstr("5 x 0 pixels"));
    EXPECT_THAT(refusal("P5 3 3 255\nabc"), HasSubstr("3 of 9 bytes"));
    std::string jpeg = jpeg_text(picture(8, 8, 1));
    const auto frame = jpeg.find("\xff\xc0");
    ASSERT_NE(frame, std::string::npos);
    jpeg.replace(frame + 5, 4, std::string("\xf0\x00\xf0\x00", 4));
    EXPECT_THAT(refusal(jpeg), HasSubstr("61440 x 61440 pixels"));
}

TEST(Image, EncodedAsPngIsThatOfLibpng) {
    for (const std::uint32_t channels : {1u, 3u}) {
        const Image image = picture(7, 5, channels);
        const std::string png = encoded_png(image);
        EXPECT_EQ(decode_png(bytes_of(png)), image);
    }
}

// A PNG whose header, checksum included, promises 30,000 x 30,000 pixels of 16 bytes.
TEST(Image, AllocatesNothingForAHugePng) {
    std::string png = png_text(picture(1, 1, 1));
    std::string header = "IHDR";
    for (int i = 0; i < 2; ++i) header += std::string("\x00\x00\x75\x30", 4);
    header += png.substr(24, 5);
    const auto crc =
        crc32(0, reinterpret_cast<const Bytef*>(header.data()), static_cast<uInt>(header.size()));
    for (int shift = 24; shift >= 0; shift -= 8) header += static_cast<char>(crc >> shift);
    png.replace(12, header.size(), header);
    EXPECT_THAT(refusal(png), HasSubstr("30000 x 30000 pixels"));
}

TEST(Image, IsRefusedWhereverItIsCutAndSurvivesFlippedBits) {
    const Image image = picture(24, 24, 3);
    test::expect_refused_where_cut({png_text(image), jpeg_text(image), pnm_text(image)});
    const Image small = picture(16, 16, 3);
    const std::vector<std::string> texts{png_text(small), jpeg_text(small), pnm_text(small)};
    // Nearly all of PNG's, whose chunks have checksums.
    EXPECT_GT(test::refused_with_flipped_bits(texts, 5, std::string::npos), 900);
}

std::uint64_t fnv1a(const Image& image) {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (const std::uint8_t pixel : image.pixels) hash = (hash ^ pixel) * 0x100000001b3;
    return hash;
}

// What Pillow 13.0.0 makes of these pixels: Image.resize((w, h), Image.BILINEAR), convert("L").
TEST(Image, ResizesAndGreysAsPillowDoes) {
    Image image{37, 53, 3, {}};
    for (std::uint32_t i = 0; i < 37 * 53 * 3; ++i)
        image.pixels.push_back(static_cast<std::uint8_t>((i * i * 31 + i * 7) >> 3));
    EXPECT_EQ(fnv1a(image), 0xf0a2a73c1f5a74ed);
    EXPECT_EQ(fnv1a(resized(image, 20, 24)), 0xaffd9da2352c34df);
    EXPECT_EQ(fnv1a(resized(image, 80, 70)), 0x8d3587bff691c19b);
    EXPECT_EQ(fnv1a(resized(image, 37, 10)), 0xccfbfe6a35ce3cbb);
    EXPECT_EQ(fnv1a(resized(image, 5, 53)), 0x4d4c49ef1622ad90);
    EXPECT_EQ(fnv1a(resized(image, 1, 1)), 0x2d34f81adf5977a0);
    EXPECT_EQ(fnv1a(with_channels(image, 1)), 0xdda97581b2ea55d0);
}

// Worked out by hand: triangle weights around each output's centre.
TEST(Image, ResizesWithATriangleAndChangesChannels) {
    EXPECT_THAT(resized({1, 2, 1, {0, 100}}, 1, 4).pixels, ElementsAre(0, 25, 75, 100));
    EXPECT_THAT(resized({1, 4, 1, {0, 0, 200, 200}}, 1, 2).pixels, ElementsAre(29, 171));
    EXPECT_THAT(resized({2, 1, 3, {0, 10, 20, 100, 110, 120}}, 1, 1).pixels,
                ElementsAre(50, 60, 70));
    const Image flat{5, 7, 3, std::vector<std::uint8_t>(105, 93)};
    for (const std::uint8_t pixel : resized(flat, 11, 3).pixels) EXPECT_EQ(pixel, 93);
    const Image image = picture(6, 6, 3);
    EXPECT_EQ(resized(image, 6, 6), image);
    EXPECT_THAT(with_channels({1, 1, 1, {7}}, 3).pixels, ElementsAre(7, 7, 7));
    const Image grey = with_channels({1, 4, 3, {255, 0, 0, 0, 255, 0, 0, 0, 255, 10, 20, 30}}, 1);
    EXPECT_THAT(grey.pixels, ElementsAre(76, 150, 29, 18));
}

}  // namespace
}  // namespace lockstep
