// SPDX-License-Identifier: Apache-2.0
// Pictures as files hold them, written by libpng and libjpeg.
#pragma once

#include "lockstep/core/hash.hpp"
#include "lockstep/core/random.hpp"

#include "transform/image.hpp"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <jpeglib.h>
#include <png.h>

namespace lockstep::test {

/// A smooth picture, so that JPEG changes it little.
inline Image picture(std::uint32_t height, std::uint32_t width, std::uint32_t channels) {
    Image image{height, width, channels, {}};
    for (std::uint32_t y = 0; y < height; ++y)
        for (std::uint32_t x = 0; x < width; ++x)
            for (std::uint32_t c = 0; c < channels; ++c)
                image.pixels.push_back(
                    static_cast<std::uint8_t>(40 + 100 * c / 2 + 90 * y / height + 20 * x / width));
    return image;
}

/// `pixels` as `color_type` and `depth` want them, row after row.
inline std::string png_text(std::uint32_t height,
                            std::uint32_t width,
                            int color_type,
                            int depth,
                            const std::string& pixels,
                            int interlace = PNG_INTERLACE_NONE) {
    std::string text;
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
    png_infop info = png_create_info_struct(png);
    png_set_write_fn(
        png,
        &text,
        [](png_structp p, png_bytep bytes, png_size_t count) {
            static_cast<std::string*>(png_get_io_ptr(p))
                ->append(reinterpret_cast<char*>(bytes), count);
        },
        nullptr);
    png_set_IHDR(png,
                 info,
                 width,
                 height,
                 depth,
                 color_type,
                 interlace,
                 PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    png_color palette[2] = {{10, 20, 30}, {200, 100, 50}};
    if (color_type == PNG_COLOR_TYPE_PALETTE) png_set_PLTE(png, info, palette, 2);
    png_write_info(png, info);
    std::string copy = pixels;
    const std::size_t row = png_get_rowbytes(png, info);
    std::vector<png_bytep> rows;
    for (std::uint32_t y = 0; y < height; ++y)
        rows.push_back(reinterpret_cast<png_bytep>(copy.data()) + y * row);
    png_write_image(png, rows.data());
    png_write_end(png, info);
    png_destroy_write_struct(&png, &info);
    return text;
}

inline std::string png_text(const Image& image) {
    return png_text(image.height,
                    image.width,
                    image.channels == 3 ? PNG_COLOR_TYPE_RGB : PNG_COLOR_TYPE_GRAY,
                    8,
                    {image.pixels.begin(), image.pixels.end()});
}

inline std::string jpeg_text(const Image& image,
                             J_COLOR_SPACE space = JCS_UNKNOWN,
                             int quality = 95) {
    jpeg_compress_struct jpeg{};
    jpeg_error_mgr errors{};
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    unsigned char* bytes = nullptr;
    unsigned long count = 0;
    jpeg_mem_dest(&jpeg, &bytes, &count);
    jpeg.image_width = image.width;
    jpeg.image_height = image.height;
    jpeg.input_components = static_cast<int>(image.channels);
    jpeg.in_color_space = image.channels == 1   ? JCS_GRAYSCALE
                          : image.channels == 4 ? JCS_CMYK
                                                : JCS_RGB;
    jpeg_set_defaults(&jpeg);
    if (space != JCS_UNKNOWN) jpeg_set_colorspace(&jpeg, space);
    jpeg_set_quality(&jpeg, quality, TRUE);
    jpeg_start_compress(&jpeg, TRUE);
    for (std::uint32_t y = 0; y < image.height; ++y) {
        auto* row = const_cast<JSAMPROW>(image.pixels.data() + y * image.row_bytes());
        jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    std::string text(reinterpret_cast<char*>(bytes), count);
    jpeg_destroy_compress(&jpeg);
    std::free(bytes);
    return text;
}

inline std::string pnm_text(const Image& image) {
    return (image.channels == 3 ? "P6 " : "P5\n# comment\n") + std::to_string(image.width) + "\n" +
           std::to_string(image.height) + " 255\n" +
           std::string(image.pixels.begin(), image.pixels.end());
}

inline Image decoded(const std::string& text) {
    return decode_image(bytes_of(text));
}

/// Why `text` is no image; "" if it is one.
inline std::string refusal(const std::string& text) {
    try {
        decoded(text);
    } catch (const BadImage& bad) {
        return bad.what();
    }
    return "";
}

/// Wherever a text is cut, there is no image.
inline void expect_refused_where_cut(const std::vector<std::string>& texts) {
    for (const std::string& text : texts)
        for (std::size_t bytes = 0; bytes < text.size(); bytes += 1 + bytes / 16)
            EXPECT_NE(refusal(text.substr(0, bytes)), "") << text.substr(0, 4) << " at " << bytes;
}

/// Flips bits of each text a thousand times, about half of them in the last `at_end` bytes: there
/// is an image of the size it says, or a refusal. Returns the number of refusals.
inline int refused_with_flipped_bits(const std::vector<std::string>& texts,
                                     std::uint64_t seed,
                                     std::size_t at_end) {
    CounterRandom random(Purpose::test, {seed});
    int refused = 0;
    for (const std::string& text : texts)
        for (int i = 0; i < 1000; ++i) {
            std::string damaged = text;
            for (std::uint64_t flips = 1 + random.below(3); flips > 0; --flips) {
                const std::uint64_t near =
                    random.below(2) * (text.size() - std::min(text.size(), at_end));
                const std::size_t at = near + random.below(text.size() - near);
                damaged[at] ^= static_cast<char>(1 << random.below(8));
            }
            try {
                const Image back = decoded(damaged);
                EXPECT_EQ(back.pixels.size(), back.height * back.row_bytes());
            } catch (const BadImage&) {
                ++refused;
            }
        }
    return refused;
}

}  // namespace lockstep::test
