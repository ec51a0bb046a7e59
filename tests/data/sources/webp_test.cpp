// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/hash.hpp"
#include "lockstep/core/random.hpp"

#include "images/image.hpp"
#include "pictures.hpp"
#include "rows.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <webp/encode.h>

namespace lockstep {
namespace {

using test::picture;
using testing::ElementsAre;
using testing::HasSubstr;

Image webp_decoded(const std::string& text) {
    return decode_image(bytes_of(std::string_view(text)));
}

// Why `text` is no image; "" if it is one.
std::string webp_refusal(const std::string& text) {
    try {
        webp_decoded(text);
    } catch (const BadImage& bad) {
        return bad.what();
    }
    return "";
}

std::string owned(std::uint8_t* bytes, std::size_t count) {
    std::string text(reinterpret_cast<char*>(bytes), count);
    WebPFree(bytes);
    return text;
}

std::string exact_webp(const Image& image) {
    std::uint8_t* bytes = nullptr;
    const std::size_t count = WebPEncodeLosslessRGB(image.pixels.data(),
                                                    static_cast<int>(image.width),
                                                    static_cast<int>(image.height),
                                                    static_cast<int>(image.row_bytes()),
                                                    &bytes);
    return owned(bytes, count);
}

std::string near_webp(const Image& image) {
    std::uint8_t* bytes = nullptr;
    const std::size_t count = WebPEncodeRGB(image.pixels.data(),
                                            static_cast<int>(image.width),
                                            static_cast<int>(image.height),
                                            static_cast<int>(image.row_bytes()),
                                            95,
                                            &bytes);
    return owned(bytes, count);
}

TEST(Webp, IsExactWhereItIsLossless) {
    const Image image = picture(33, 21, 3), back = webp_decoded(exact_webp(image));
    EXPECT_EQ(back.height, 33u);
    EXPECT_EQ(back.width, 21u);
    EXPECT_EQ(back.channels, 3u);
    EXPECT_EQ(back.pixels, image.pixels);
}

TEST(Webp, IsNearWhereItIsNot) {
    const Image image = picture(33, 21, 3), back = webp_decoded(near_webp(image));
    ASSERT_EQ(back.pixels.size(), image.pixels.size());
    for (std::size_t i = 0; i < image.pixels.size(); ++i)
        ASSERT_NEAR(back.pixels[i], image.pixels[i], 8) << i;
}

TEST(Webp, LosesItsTransparency) {
    const std::uint8_t pixels[] = {1, 2, 3, 9, 4, 5, 6, 255};
    std::uint8_t* bytes = nullptr;
    const std::size_t count = WebPEncodeLosslessRGBA(pixels, 2, 1, 8, &bytes);
    EXPECT_THAT(webp_decoded(owned(bytes, count)).pixels, ElementsAre(1, 2, 3, 4, 5, 6));
}

std::string little(std::uint32_t value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
    return text;
}

// The head of a file of more than one part; its sizes are stored less 1.
std::string extended(char flags, std::uint32_t height, std::uint32_t width) {
    const std::string head = "WEBPVP8X" + little(10, 4) + flags + std::string(3, '\0') +
                             little(width - 1, 3) + little(height - 1, 3);
    return "RIFF" + little(static_cast<std::uint32_t>(head.size()), 4) + head;
}

TEST(Webp, MustBeOneImage) {
    EXPECT_THAT(webp_refusal(extended(2, 4, 4)), HasSubstr("it is animated"));
}

TEST(Webp, AllocatesNothingForSizesThatLie) {
    EXPECT_NE(webp_refusal(extended(0, 16'000'000, 16)), "");
    EXPECT_NE(webp_refusal(extended(0, 16'000'000, 16'000'000)), "");
    std::string large = exact_webp(picture(8, 8, 3));
    const auto head = large.find("VP8L");
    ASSERT_NE(head, std::string::npos);
    large.replace(head + 9, 4, little(16382 | 16382 << 14, 4));  // 14 bits each, less 1
    EXPECT_THAT(webp_refusal(large), HasSubstr("16383 x 16383 pixels"));
}

TEST(Webp, IsRefusedWhereverItIsCut) {
    const Image image = picture(24, 24, 3);
    for (const std::string& text : {exact_webp(image), near_webp(image)})
        for (std::size_t bytes = 0; bytes < text.size(); bytes += 1 + bytes / 16)
            EXPECT_NE(webp_refusal(text.substr(0, bytes)), "") << bytes;
    EXPECT_THAT(webp_refusal(near_webp(image).substr(0, 40)), HasSubstr("cut short"));
}

TEST(Webp, SurvivesFlippedBits) {
    CounterRandom random(Purpose::test, {7});
    const Image image = picture(16, 16, 3);
    int refused = 0;
    for (const std::string& text : {exact_webp(image), near_webp(image)})
        for (int i = 0; i < 2000; ++i) {
            std::string damaged = text;
            for (std::uint64_t flips = 1 + random.below(3); flips > 0; --flips)
                damaged[random.below(text.size())] ^= static_cast<char>(1 << random.below(8));
            try {
                const Image back = webp_decoded(damaged);
                EXPECT_EQ(back.pixels.size(), back.height * back.row_bytes());
            } catch (const BadImage&) {
                ++refused;
            }
        }
    EXPECT_GT(refused, 200);
}

TEST(Webp, IsPackedFromAFolderAsPngIs) {
    const test::TempDir folder;
    const Image image = picture(6, 4, 3);
    folder.file("a/1.png", test::png_text(image));
    folder.file("a/2.webp", exact_webp(image));
    const auto source = open_folder(folder.path());
    ASSERT_EQ(source->samples(), 2u);
    EXPECT_EQ(test::values_of<std::uint8_t>(*source, 0, 0),
              test::values_of<std::uint8_t>(*source, 0, 1));
    folder.file("a/2.webp", exact_webp(image).substr(0, 30));
    const Error error =
        test::error_of([&] { test::values_of<std::uint8_t>(*open_folder(folder.path()), 0, 1); });
    EXPECT_EQ(error.code(), "E237");
    EXPECT_THAT(error.text(), HasSubstr("cut short"));
}

}  // namespace
}  // namespace lockstep
