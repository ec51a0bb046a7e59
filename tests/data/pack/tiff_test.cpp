// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/hash.hpp"

#include "pictures.hpp"
#include "rows.hpp"
#include "support/unit.hpp"
#include "transform/image.hpp"

#include <algorithm>
#include <cstring>

#include <tiffio.h>

namespace lockstep {
namespace {

using test::decoded;
using test::picture;
using test::refusal;

// One page; `pixels` are rows as they are stored, plane after plane where colours are apart.
struct TiffPage {
    std::uint32_t height = 0, width = 0;
    std::uint16_t samples = 1, bits = 8;
    std::string pixels;
    std::uint16_t photometric = PHOTOMETRIC_MINISBLACK, compression = COMPRESSION_NONE;
    std::uint16_t planes = PLANARCONFIG_CONTIG, format = SAMPLEFORMAT_UINT, orientation = 1;
    std::vector<std::uint16_t> extra = {};  // what samples beyond colours are
    std::uint32_t subfile = 0, tile = 0;    // tile: height and width of tiles; 0: rows
    std::uint32_t rows_per_strip = 3;
};

void set_tags(TIFF* tiff, const TiffPage& page) {
    TIFFSetField(tiff, TIFFTAG_IMAGELENGTH, page.height);
    TIFFSetField(tiff, TIFFTAG_IMAGEWIDTH, page.width);
    TIFFSetField(tiff, TIFFTAG_SAMPLESPERPIXEL, page.samples);
    TIFFSetField(tiff, TIFFTAG_BITSPERSAMPLE, page.bits);
    TIFFSetField(tiff, TIFFTAG_PHOTOMETRIC, page.photometric);
    TIFFSetField(tiff, TIFFTAG_COMPRESSION, page.compression);
    TIFFSetField(tiff, TIFFTAG_PLANARCONFIG, page.planes);
    TIFFSetField(tiff, TIFFTAG_SAMPLEFORMAT, page.format);
    TIFFSetField(tiff, TIFFTAG_ORIENTATION, page.orientation);
    TIFFSetField(tiff, TIFFTAG_SUBFILETYPE, page.subfile);
    if (!page.extra.empty())
        TIFFSetField(tiff,
                     TIFFTAG_EXTRASAMPLES,
                     static_cast<std::uint16_t>(page.extra.size()),
                     page.extra.data());
    if (page.photometric == PHOTOMETRIC_YCBCR)
        TIFFSetField(tiff, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
    if (page.photometric == PHOTOMETRIC_PALETTE) {
        std::vector<std::uint16_t> map(3u << page.bits);
        for (std::size_t i = 0; i < map.size(); ++i)
            map[i] = static_cast<std::uint16_t>((7 * i + 13) % 256 << 8);
        const std::size_t third = map.size() / 3;
        TIFFSetField(tiff, TIFFTAG_COLORMAP, &map[0], &map[third], &map[2 * third]);
    }
}

void write_tiles(TIFF* tiff, const TiffPage& page) {
    const std::size_t pixel = page.samples * page.bits / 8u, row = page.width * pixel;
    std::string tile(page.tile * page.tile * pixel, '\0');
    for (std::uint32_t y = 0; y < page.height; y += page.tile)
        for (std::uint32_t x = 0; x < page.width; x += page.tile) {
            for (std::uint32_t i = 0; i < std::min(page.tile, page.height - y); ++i)
                std::memcpy(tile.data() + i * page.tile * pixel,
                            page.pixels.data() + (y + i) * row + x * pixel,
                            std::min(page.tile, page.width - x) * pixel);
            TIFFWriteTile(tiff, tile.data(), x, y, 0, 0);
        }
}

void write_rows(TIFF* tiff, const TiffPage& page) {
    const std::uint32_t planes = page.planes == PLANARCONFIG_SEPARATE ? page.samples : 1;
    const std::size_t row = page.pixels.size() / page.height / planes;
    std::string line;
    for (std::uint32_t plane = 0; plane < planes; ++plane)
        for (std::uint32_t y = 0; y < page.height; ++y) {
            line = page.pixels.substr((plane * page.height + y) * row, row);
            TIFFWriteScanline(tiff, line.data(), y, static_cast<std::uint16_t>(plane));
        }
}

// `mode`: libtiff's, such as "wl" and "wb" (byte orders) and "w8" (BigTIFF).
std::string tiff_text(const std::vector<TiffPage>& pages, const char* mode = "w") {
    const TempDir folder;
    const fs::path path = folder / "made.tif";
    TIFF* tiff = TIFFOpen(path.c_str(), mode);
    for (const TiffPage& page : pages) {
        set_tags(tiff, page);
        if (page.tile > 0) {
            TIFFSetField(tiff, TIFFTAG_TILELENGTH, page.tile);
            TIFFSetField(tiff, TIFFTAG_TILEWIDTH, page.tile);
            write_tiles(tiff, page);
        } else {
            TIFFSetField(tiff, TIFFTAG_ROWSPERSTRIP, page.rows_per_strip);
            write_rows(tiff, page);
        }
        TIFFWriteDirectory(tiff);
    }
    TIFFClose(tiff);
    return content_of(path);
}

// The page that holds an image.
TiffPage tiff_page(const Image& image, std::uint16_t compression = COMPRESSION_NONE) {
    return {.height = image.height,
            .width = image.width,
            .samples = static_cast<std::uint16_t>(image.channels),
            .pixels = {image.pixels.begin(), image.pixels.end()},
            .photometric = static_cast<std::uint16_t>(image.channels == 3 ? PHOTOMETRIC_RGB
                                                                          : PHOTOMETRIC_MINISBLACK),
            .compression = compression};
}

std::string stored(std::initializer_list<int> values) {
    std::string text;
    for (const int value : values) text += static_cast<char>(value);
    return text;
}

TEST(Tiff, IsExactInEachCompressionAndByteOrder) {
    for (const std::uint32_t channels : {1u, 3u})
        for (const int compression : {COMPRESSION_NONE,
                                      COMPRESSION_LZW,
                                      COMPRESSION_PACKBITS,
                                      COMPRESSION_ADOBE_DEFLATE,
                                      COMPRESSION_DEFLATE,
                                      COMPRESSION_ZSTD,
                                      COMPRESSION_LZMA}) {
            const auto number = static_cast<std::uint16_t>(compression);
            if (TIFFIsCODECConfigured(number) == 0) continue;
            const Image image = picture(37, 21, channels);
            TiffPage page = tiff_page(image, number);
            for (const char* mode : {"wl", "wb", "w8"})
                EXPECT_EQ(decoded(tiff_text({page}, mode)), image) << compression << " " << mode;
            page.tile = 16;
            EXPECT_EQ(decoded(tiff_text({page})), image) << compression;
        }
}

TEST(Tiff, OfJpegIsNear) {
    const Image image = picture(33, 20, 3);
    TiffPage page = tiff_page(image, COMPRESSION_JPEG);
    page.photometric = PHOTOMETRIC_YCBCR;
    page.rows_per_strip = 16;
    const Image back = decoded(tiff_text({page}));
    ASSERT_EQ(back.pixels.size(), image.pixels.size());
    for (std::size_t i = 0; i < image.pixels.size(); ++i)
        ASSERT_NEAR(back.pixels[i], image.pixels[i], 8) << i;
}

TEST(Tiff, OfFewBitsIsStretchedAndOf16Cut) {
    EXPECT_THAT(decoded(tiff_text({{1, 3, 1, 1, "\xa0"}})).pixels, ElementsAre(255, 0, 255));
    EXPECT_THAT(decoded(tiff_text({{1, 3, 1, 2, "\x1b"}})).pixels, ElementsAre(0, 85, 170));
    EXPECT_THAT(decoded(tiff_text({{1, 3, 1, 4, "\x0f\x10"}})).pixels, ElementsAre(0, 255, 17));
    for (const char* mode : {"wl", "wb"}) {
        const std::uint16_t values[] = {0x6162, 0xfeff};
        const std::string pixels(reinterpret_cast<const char*>(values), sizeof values);
        const std::string text = tiff_text({{1, 2, 1, 16, pixels}}, mode);
        EXPECT_THAT(decoded(text).pixels, ElementsAre(0x61, 0xfe));
        EXPECT_EQ(channel_bits(bytes_of(text)), 16u);
        EXPECT_EQ(channel_bits(bytes_of(std::string_view(text).substr(0, 12))), 8u);
    }
}

TEST(Tiff, MakesOtherKindsPlain) {
    const auto white = stored({0, 200});
    EXPECT_THAT(decoded(tiff_text({{1, 2, 1, 8, white, PHOTOMETRIC_MINISWHITE}})).pixels,
                ElementsAre(255, 55));
    EXPECT_THAT(
        decoded(tiff_text({{1, 3, 1, 1, "\x40", PHOTOMETRIC_MINISWHITE, COMPRESSION_CCITTFAX4}}))
            .pixels,
        ElementsAre(255, 0, 255));
    // Place i of the palette is 7 i + 13, and so on from channel to channel.
    EXPECT_THAT(decoded(tiff_text({{1, 2, 1, 2, "\x70", PHOTOMETRIC_PALETTE}})).pixels,
                ElementsAre(20, 48, 76, 34, 62, 90));
    TiffPage planes{
        2, 2, 3, 8, stored({1, 2, 3, 4, 11, 12, 13, 14, 21, 22, 23, 24}), PHOTOMETRIC_RGB};
    planes.planes = PLANARCONFIG_SEPARATE;
    EXPECT_THAT(decoded(tiff_text({planes})).pixels,
                ElementsAre(1, 11, 21, 2, 12, 22, 3, 13, 23, 4, 14, 24));
}

TEST(Tiff, DropsTransparencyAndNothingElse) {
    TiffPage page{1, 2, 4, 8, stored({1, 2, 3, 0, 4, 5, 6, 255}), PHOTOMETRIC_RGB};
    page.extra = {EXTRASAMPLE_UNASSALPHA};
    EXPECT_THAT(decoded(tiff_text({page})).pixels, ElementsAre(1, 2, 3, 4, 5, 6));
    page.extra = {EXTRASAMPLE_UNSPECIFIED};
    EXPECT_THAT(refusal(tiff_text({page})), HasSubstr("4 values for each pixel"));
    EXPECT_THAT(refusal(tiff_text({{1, 2, 4, 8, page.pixels}})),
                HasSubstr("4 values for each pixel"));
}

// What is to be seen is 1 2 3 / 4 5 6 in each case.
TEST(Tiff, IsTurnedAsItsOrientationSays) {
    const std::string all[] = {stored({1, 2, 3, 4, 5, 6}),
                               stored({3, 2, 1, 6, 5, 4}),
                               stored({6, 5, 4, 3, 2, 1}),
                               stored({4, 5, 6, 1, 2, 3}),
                               stored({1, 4, 2, 5, 3, 6}),
                               stored({3, 6, 2, 5, 1, 4}),
                               stored({6, 3, 5, 2, 4, 1}),
                               stored({4, 1, 5, 2, 6, 3})};
    for (std::uint16_t orientation = 1; orientation <= 8; ++orientation) {
        TiffPage page{2, 3, 1, 8, all[orientation - 1]};
        if (orientation >= 5) std::swap(page.height, page.width);
        page.orientation = orientation;
        const Image image = decoded(tiff_text({page}));
        EXPECT_EQ(image.height, 2u) << orientation;
        EXPECT_THAT(image.pixels, ElementsAre(1, 2, 3, 4, 5, 6)) << orientation;
    }
}

TEST(Tiff, MustHaveOnePage) {
    const TiffPage page = tiff_page(picture(4, 4, 1));
    TiffPage small = tiff_page(picture(2, 2, 1));
    EXPECT_THAT(refusal(tiff_text({page, page, page})), HasSubstr("it has 3 pages"));
    for (const std::uint32_t kind : {FILETYPE_REDUCEDIMAGE, FILETYPE_MASK}) {
        small.subfile = kind;
        EXPECT_EQ(decoded(tiff_text({page, small})).height, 4u);
        EXPECT_EQ(decoded(tiff_text({small, page})).height, 4u);
        EXPECT_EQ(decoded(tiff_text({small})).height, 2u);
    }
    EXPECT_THAT(refusal(tiff_text(std::vector(65, small))), HasSubstr("more than 64 pages"));
}

TEST(Tiff, IsRefusedWhereSomethingWouldBeLost) {
    TiffPage real{1, 1, 1, 32, "abcd"};
    real.format = SAMPLEFORMAT_IEEEFP;
    EXPECT_THAT(refusal(tiff_text({real})), has("real or complex numbers of 32 bits", "--npy"));
    TiffPage with_sign{1, 1, 1, 8, "a"};
    with_sign.format = SAMPLEFORMAT_INT;
    EXPECT_THAT(refusal(tiff_text({with_sign})), HasSubstr("numbers with sign of 8 bits"));
    EXPECT_THAT(refusal(tiff_text({{1, 2, 1, 12, "abc"}})), HasSubstr("of 12 bits"));
    EXPECT_THAT(refusal(tiff_text({{1, 1, 4, 8, "abcd", PHOTOMETRIC_SEPARATED}})),
                HasSubstr("interpretation 5"));
    EXPECT_THAT(refusal(tiff_text({{1, 1, 3, 8, "abc", PHOTOMETRIC_CIELAB}})),
                HasSubstr("interpretation 8"));
}

// Where the value of a tag lies in a little-endian file's first directory.
std::size_t place_of(const std::string& tiff, ttag_t tag) {
    std::uint32_t directory = 0;
    std::memcpy(&directory, tiff.data() + 4, sizeof directory);
    std::uint16_t count = 0, name = 0;
    std::memcpy(&count, tiff.data() + directory, sizeof count);
    for (std::size_t i = 0; i < count; ++i) {
        std::memcpy(&name, tiff.data() + directory + 2 + 12 * i, sizeof name);
        if (name == tag) return directory + 2 + 12 * i + 8;
    }
    return std::string::npos;
}

// The tag's one value made `value`, of 32 bits.
std::string with_tag(std::string tiff, ttag_t tag, std::uint32_t value) {
    const std::uint16_t type = TIFF_LONG;
    const std::size_t at = place_of(tiff, tag);
    std::memcpy(tiff.data() + at - 6, &type, sizeof type);
    std::memcpy(tiff.data() + at, &value, sizeof value);
    return tiff;
}

TEST(Tiff, AllocatesNothingForSizesThatLie) {
    const std::string text = tiff_text({tiff_page(picture(8, 8, 3))}, "wl");
    const std::string wide = with_tag(text, TIFFTAG_IMAGEWIDTH, 2'000'000'000);
    EXPECT_THAT(refusal(wide), HasSubstr("8 x 2000000000 pixels"));
    EXPECT_NE(refusal(with_tag(text, TIFFTAG_IMAGEWIDTH, 8'000'000)), "");
    EXPECT_NE(refusal(with_tag(text, TIFFTAG_IMAGEWIDTH, 0)), "");
    EXPECT_NE(refusal(with_tag(text, TIFFTAG_SAMPLESPERPIXEL, 60000)), "");
    TiffPage page = tiff_page(picture(20, 20, 3));
    page.tile = 16;
    const std::string tiled = tiff_text({page}, "wl");
    EXPECT_NE(refusal(with_tag(tiled, TIFFTAG_TILEWIDTH, 1'000'000'000)), "");
    EXPECT_NE(refusal(with_tag(tiled, TIFFTAG_COMPRESSION, COMPRESSION_OJPEG)), "");
}

// A second directory where the first one is.
TEST(Tiff, IsRefusedWhereItsPagesLeadInCircles) {
    TiffPage small = tiff_page(picture(2, 2, 1));
    small.subfile = FILETYPE_REDUCEDIMAGE;
    std::string text = tiff_text({small}, "wl");
    std::uint32_t directory = 0;
    std::uint16_t count = 0;
    std::memcpy(&directory, text.data() + 4, sizeof directory);
    std::memcpy(&count, text.data() + directory, sizeof count);
    std::memcpy(text.data() + directory + 2 + 12u * count, &directory, sizeof directory);
    EXPECT_NE(refusal(text), "");
}

std::vector<std::string> samples_of_tiff() {
    const Image image = picture(24, 24, 3);
    std::vector<std::string> all;
    for (const int compression :
         {COMPRESSION_NONE, COMPRESSION_LZW, COMPRESSION_ADOBE_DEFLATE, COMPRESSION_PACKBITS}) {
        TiffPage page = tiff_page(image, static_cast<std::uint16_t>(compression));
        all.push_back(tiff_text({page}));
        page.tile = 16;
        all.push_back(tiff_text({page}));
    }
    TiffPage jpeg = tiff_page(image, COMPRESSION_JPEG);
    jpeg.photometric = PHOTOMETRIC_YCBCR;
    jpeg.rows_per_strip = 16;
    all.push_back(tiff_text({jpeg}));
    return all;
}

TEST(Tiff, IsRefusedWhereverItIsCutAndSurvivesFlippedBits) {
    test::expect_refused_where_cut(samples_of_tiff());
    // Half of them in the directory, which lies at the end, and in the header.
    EXPECT_GT(test::refused_with_flipped_bits(samples_of_tiff(), 6, 260), 1000);
}

// A mask: neither coloured, stretched nor inverted.
TEST(Tiff, KeepsNumbers) {
    const auto numbers = [](const TiffPage& page) {
        const std::string text = tiff_text({page});
        return decode_numbers(bytes_of(text));
    };
    TiffPage page{.height = 2, .width = 2, .pixels = std::string("\0\1\2\xff", 4)};
    for (const int colours :
         {PHOTOMETRIC_MINISBLACK, PHOTOMETRIC_MINISWHITE, PHOTOMETRIC_PALETTE}) {
        page.photometric = static_cast<std::uint16_t>(colours);
        const Image mask = numbers(page);
        EXPECT_EQ(mask.channels, 1u);
        EXPECT_THAT(mask.pixels, ElementsAre(0, 1, 2, 255)) << colours;
    }
    const TiffPage bits{.height = 2, .width = 2, .bits = 1, .pixels = "\x40\x80"};
    EXPECT_THAT(numbers(bits).pixels, ElementsAre(0, 1, 1, 0));
    TiffPage lossy = tiff_page(picture(16, 16, 1), COMPRESSION_JPEG);
    lossy.rows_per_strip = 16;
    EXPECT_THROW(numbers(lossy), BadImage);
}

TEST(Tiff, IsPackedFromAFolderAsPngIs) {
    const TempDir folder;
    const Image image = picture(6, 4, 3);
    folder.file("a/1.png", test::png_text(image));
    folder.file("a/2.TIF", tiff_text({tiff_page(image, COMPRESSION_LZW)}));
    folder.file("a/3.tiff", tiff_text({tiff_page(picture(6, 4, 1))}));
    const auto source = open_folder(folder.path());
    ASSERT_EQ(source->samples(), 3u);
    EXPECT_EQ(test::values_of<std::uint8_t>(*source, 0, 0),
              test::values_of<std::uint8_t>(*source, 0, 1));
    folder.file("a/3.tiff", tiff_text({tiff_page(image), tiff_page(image)}));
    const Error error =
        test::error_of([&] { test::values_of<std::uint8_t>(*open_folder(folder.path()), 0, 2); });
    EXPECT_EQ(error.code(), "E237");
    EXPECT_THAT(error.text(), HasSubstr("it has 2 pages"));
}

}  // namespace
}  // namespace lockstep
