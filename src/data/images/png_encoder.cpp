// SPDX-License-Identifier: Apache-2.0
// PNG (ISO/IEC 15948) of 8 bits without filters; it needs only zlib, which is always there.
#include "lockstep/core/error.hpp"

#include "image.hpp"

#include <zlib.h>

namespace lockstep {
namespace {

void add_number(std::string& text, std::uint64_t number) {
    for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(number >> shift);
}

void add_chunk(std::string& png, const std::string& kind, const std::string& content) {
    add_number(png, content.size());
    const std::string checked = kind + content;
    png += checked;
    add_number(
        png,
        ::crc32(
            0, reinterpret_cast<const Bytef*>(checked.data()), static_cast<uInt>(checked.size())));
}

std::string deflated(const std::string& raw) {
    uLongf bytes = ::compressBound(raw.size());
    std::string packed(bytes, '\0');
    const int result = ::compress2(reinterpret_cast<Bytef*>(packed.data()),
                                   &bytes,
                                   reinterpret_cast<const Bytef*>(raw.data()),
                                   raw.size(),
                                   Z_BEST_SPEED);
    expect(result == Z_OK, "zlib has room for all it writes");
    packed.resize(bytes);
    return packed;
}

}  // namespace

std::string encoded_png(const Image& image) {
    std::string png = "\x89PNG\r\n\x1a\n", header, lines;
    add_number(header, image.width);
    add_number(header, image.height);
    header += {'\x08', image.channels == 1 ? '\0' : '\x02', '\0', '\0', '\0'};
    for (std::uint32_t y = 0; y < image.height; ++y) {
        lines += '\0';  // no filter
        lines.append(reinterpret_cast<const char*>(image.pixels.data()) + y * image.row_bytes(),
                     image.row_bytes());
    }
    add_chunk(png, "IHDR", header);
    add_chunk(png, "IDAT", deflated(lines));
    add_chunk(png, "IEND", "");
    return png;
}

}  // namespace lockstep
