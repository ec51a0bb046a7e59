// SPDX-License-Identifier: Apache-2.0
// TIFF files in memory, written by libtiff.
#pragma once

#include "transform/image.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <tiffio.h>

namespace lockstep::test {

/// One page; `pixels` are rows as they are stored, plane after plane where colours are apart.
struct TiffPage {
    std::uint32_t height = 0, width = 0;
    std::uint16_t samples = 1, bits = 8;
    std::string pixels;
    std::uint16_t photometric = PHOTOMETRIC_MINISBLACK, compression = COMPRESSION_NONE;
    std::uint16_t planes = PLANARCONFIG_CONTIG, format = SAMPLEFORMAT_UINT, orientation = 1;
    std::vector<std::uint16_t> extra = {};  ///< what samples beyond colours are
    std::uint32_t subfile = 0, tile = 0;    ///< tile: height and width of tiles; 0: rows
    std::uint32_t rows_per_strip = 3;
};

namespace tiff_detail {

struct Memory {
    std::string text;
    std::size_t at = 0;
};

inline Memory& memory(thandle_t handle) {
    return *static_cast<Memory*>(handle);
}

inline tmsize_t read(thandle_t handle, void* out, tmsize_t bytes) {
    Memory& file = memory(handle);
    const std::size_t count = std::min(file.text.size() - std::min(file.at, file.text.size()),
                                       static_cast<std::size_t>(bytes));
    std::memcpy(out, file.text.data() + file.at, count);
    file.at += count;
    return static_cast<tmsize_t>(count);
}

inline tmsize_t write(thandle_t handle, void* bytes, tmsize_t count) {
    Memory& file = memory(handle);
    const auto size = static_cast<std::size_t>(count);
    file.text.resize(std::max(file.text.size(), file.at + size));
    std::memcpy(file.text.data() + file.at, bytes, size);
    file.at += size;
    return count;
}

inline toff_t seek(thandle_t handle, toff_t offset, int from) {
    Memory& file = memory(handle);
    file.at = offset + (from == SEEK_CUR ? file.at : from == SEEK_END ? file.text.size() : 0);
    return file.at;
}

inline void set_tags(TIFF* tiff, const TiffPage& page) {
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

inline void write_tiles(TIFF* tiff, const TiffPage& page) {
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

inline void write_rows(TIFF* tiff, const TiffPage& page) {
    const std::uint32_t planes = page.planes == PLANARCONFIG_SEPARATE ? page.samples : 1;
    const std::size_t row = page.pixels.size() / page.height / planes;
    std::string line;
    for (std::uint32_t plane = 0; plane < planes; ++plane)
        for (std::uint32_t y = 0; y < page.height; ++y) {
            line = page.pixels.substr((plane * page.height + y) * row, row);
            TIFFWriteScanline(tiff, line.data(), y, static_cast<std::uint16_t>(plane));
        }
}

}  // namespace tiff_detail

/// `mode`: libtiff's, such as "wl" and "wb" (byte orders) and "w8" (BigTIFF).
inline std::string tiff_text(const std::vector<TiffPage>& pages, const char* mode = "w") {
    using namespace tiff_detail;
    Memory memory;
    TIFF* tiff = TIFFClientOpen(
        "made",
        mode,
        &memory,
        read,
        write,
        seek,
        [](thandle_t) { return 0; },
        [](thandle_t handle) -> toff_t { return tiff_detail::memory(handle).text.size(); },
        nullptr,
        nullptr);
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
    return memory.text;
}

/// The page that holds an image.
inline TiffPage tiff_page(const Image& image, std::uint16_t compression = COMPRESSION_NONE) {
    return {.height = image.height,
            .width = image.width,
            .samples = static_cast<std::uint16_t>(image.channels),
            .pixels = {image.pixels.begin(), image.pixels.end()},
            .photometric = static_cast<std::uint16_t>(image.channels == 3 ? PHOTOMETRIC_RGB
                                                                          : PHOTOMETRIC_MINISBLACK),
            .compression = compression};
}

}  // namespace lockstep::test
