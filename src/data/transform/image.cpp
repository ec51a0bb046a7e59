// SPDX-License-Identifier: Apache-2.0

#include "image.hpp"

#include "lockstep/core/error.hpp"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>
#include <zlib.h>

namespace lockstep {
namespace {

constexpr std::uint64_t most_pixels = std::uint64_t{1} << 26;

bool begins_with(std::span<const std::byte> content, std::string_view magic) {
    return content.size() >= magic.size() &&
           std::equal(magic.begin(), magic.end(), content.begin(), [](char a, std::byte b) {
               return static_cast<std::byte>(a) == b;
           });
}

bool is_png(std::span<const std::byte> content) {
    return begins_with(content, "\x89PNG\r\n\x1a\n");
}

// In either byte order; 43 is BigTIFF's number.
bool is_tiff(std::span<const std::byte> content) {
    constexpr std::string_view magics[] = {{"II*\0", 4}, {"MM\0*", 4}, {"II+\0", 4}, {"MM\0+", 4}};
    return std::ranges::any_of(magics,
                               [&](std::string_view magic) { return begins_with(content, magic); });
}

// Numbers and white space of a PNM header, with comments.
class PnmHeader {
  public:
    explicit PnmHeader(std::span<const std::byte> content) : content_(content) {}

    std::uint64_t number() {
        skip_space();
        std::uint64_t value = 0;
        const std::size_t begin = at_;
        for (; std::isdigit(peek()) != 0 && at_ - begin < 10; ++at_)
            value = 10 * value + static_cast<std::uint64_t>(peek() - '0');
        if (at_ == begin) throw BadImage("a number is missing in its header");
        return value;
    }

    /// Returns the bytes after the one white space after the last number.
    std::span<const std::byte> rest() {
        if (std::isspace(peek()) == 0) throw BadImage("it ends within its header");
        return content_.subspan(at_ + 1);
    }

  private:
    int peek() const { return at_ < content_.size() ? std::to_integer<int>(content_[at_]) : -1; }
    void skip_space() {
        while (std::isspace(peek()) != 0 || peek() == '#')
            if (peek() == '#')
                while (peek() != '\n' && peek() != -1) ++at_;
            else
                ++at_;
    }

    std::span<const std::byte> content_;
    std::size_t at_ = 2;
};

Image decode_pnm(std::span<const std::byte> content) {
    Image image;
    image.channels = begins_with(content, "P6") ? 3 : 1;
    PnmHeader header(content);
    const std::uint64_t width = header.number(), height = header.number(), most = header.number();
    check_dimensions(height, width);
    if (most < 1 || most > 255)
        throw BadImage(fmt::format("its largest value is {}; 1 to 255 can be packed", most));
    image.height = static_cast<std::uint32_t>(height);
    image.width = static_cast<std::uint32_t>(width);
    const auto pixels = header.rest();
    const std::size_t needed = image.height * image.row_bytes();
    if (pixels.size() < needed)
        throw BadImage(fmt::format("it has {} of {} bytes of pixels", pixels.size(), needed));
    image.pixels.resize(needed);
    std::ranges::transform(pixels.first(needed), image.pixels.begin(), [most](std::byte pixel) {
        const auto value = std::min(std::to_integer<std::uint64_t>(pixel), most);
        return static_cast<std::uint8_t>((value * 255 + most / 2) / most);
    });
    return image;
}

constexpr int precision = 22;  // bits after the point, as Pillow's for 8-bit channels

// The inputs of one output, with their weights.
struct Taps {
    std::size_t first = 0;
    std::vector<std::int32_t> weights;
};

double triangle(double x) {
    const double distance = x < 0 ? -x : x;
    return distance < 1 ? 1 - distance : 0;
}

std::vector<Taps> taps_of(std::uint32_t in, std::uint32_t out) {
    const double scale = static_cast<double>(in) / out, support = std::max(scale, 1.0);
    std::vector<Taps> all(out);
    for (std::uint32_t i = 0; i < out; ++i) {
        const double centre = (i + 0.5) * scale;
        const int first = std::max(static_cast<int>(centre - support + 0.5), 0);
        const int last = std::min(static_cast<int>(centre + support + 0.5), static_cast<int>(in));
        std::vector<double> weights;
        double sum = 0;
        for (int x = first; x < last; ++x) {
            weights.push_back(triangle((x - centre + 0.5) * (1 / support)));
            sum += weights.back();
        }
        all[i].first = static_cast<std::size_t>(first);
        for (const double weight : weights)
            all[i].weights.push_back(
                static_cast<std::int32_t>(0.5 + weight / sum * (1 << precision)));
    }
    return all;
}

// One output of a line of pixels that are `stride` apart.
std::uint8_t blend(const std::uint8_t* line, std::size_t stride, const Taps& taps) {
    std::int64_t sum = 1 << (precision - 1);
    const std::uint8_t* pixel = line + taps.first * stride;
    for (const std::int32_t weight : taps.weights) {
        sum += std::int64_t{*pixel} * weight;
        pixel += stride;
    }
    return static_cast<std::uint8_t>(std::min<std::int64_t>(sum >> precision, 255));
}

Image resized_across(const Image& image, std::uint32_t width) {
    const std::vector<Taps> taps = taps_of(image.width, width);
    Image out{image.height, width, image.channels, {}};
    out.pixels.resize(out.height * out.row_bytes());
    std::uint8_t* to = out.pixels.data();
    for (std::uint32_t y = 0; y < out.height; ++y)
        for (std::uint32_t x = 0; x < width; ++x)
            for (std::uint32_t c = 0; c < out.channels; ++c)
                *to++ =
                    blend(image.pixels.data() + y * image.row_bytes() + c, image.channels, taps[x]);
    return out;
}

Image resized_down(const Image& image, std::uint32_t height) {
    const std::vector<Taps> taps = taps_of(image.height, height);
    Image out{height, image.width, image.channels, {}};
    const std::size_t row = out.row_bytes();
    out.pixels.resize(height * row);
    std::uint8_t* to = out.pixels.data();
    for (std::uint32_t y = 0; y < height; ++y)
        for (std::size_t x = 0; x < row; ++x) *to++ = blend(image.pixels.data() + x, row, taps[y]);
    return out;
}

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

void check_dimensions(std::uint64_t height, std::uint64_t width) {
    if (height == 0 || width == 0 || height > most_pixels / width)
        throw BadImage(fmt::format(
            "it says that it has {} x {} pixels; 1 to {} are allowed", height, width, most_pixels));
}

Image decode_image(std::span<const std::byte> content) {
    if (is_png(content)) return decode_png(content);
    if (begins_with(content, "\xff\xd8\xff")) return decode_jpeg(content);
    if (is_tiff(content)) return decode_tiff(content);
    if (begins_with(content, "P5") || begins_with(content, "P6")) return decode_pnm(content);
    const bool is_webp = begins_with(content, "RIFF") && content.size() >= 12 &&
                         begins_with(content.subspan(8), "WEBP");
    if (is_webp) throw BadImage("it is a WebP file, which Lockstep does not read");
    throw BadImage("it begins neither as PNG, JPEG or TIFF files do, nor as binary PNM (P5, P6)");
}

Image decode_numbers(std::span<const std::byte> content) {
    if (is_png(content)) return decode_png(content, Pixels::numbers);
    if (is_tiff(content)) return decode_tiff(content, Pixels::numbers);
    if (!begins_with(content, "P5"))
        throw BadImage("it is no PNG, TIFF or PGM file, which keep numbers");
    PnmHeader header(content);
    header.number(), header.number();
    if (header.number() != 255) throw BadImage("its largest value is not 255");
    return decode_pnm(content);
}

std::uint32_t channel_bits(std::span<const std::byte> content) {
    constexpr std::size_t depth_at = 24;  // in the first chunk, IHDR
    if (is_png(content) && content.size() > depth_at)
        return std::to_integer<std::uint32_t>(content[depth_at]);
    return is_tiff(content) ? tiff_channel_bits(content) : 8;
}

bool has_alpha(std::span<const std::byte> content) {
    constexpr std::size_t kind_at = 25;  // in the first chunk, IHDR
    constexpr std::byte alpha{4};        // a bit of the kind of colours
    return is_png(content) && content.size() > kind_at &&
           (content[kind_at] & alpha) != std::byte{0};
}

Image with_channels(Image image, std::uint32_t channels) {
    if (image.channels == channels) return image;
    Image out{image.height, image.width, channels, {}};
    out.pixels.resize(out.height * out.row_bytes());
    const std::size_t count = std::size_t{image.height} * image.width;
    for (std::size_t i = 0; i < count; ++i)
        if (channels == 3) {
            std::fill_n(
                out.pixels.begin() + static_cast<std::ptrdiff_t>(3 * i), 3, image.pixels[i]);
        } else {
            const std::uint8_t* p = image.pixels.data() + 3 * i;
            out.pixels[i] = static_cast<std::uint8_t>(
                (p[0] * 19595u + p[1] * 38470u + p[2] * 7471u + 0x8000u) >> 16);
        }
    return out;
}

Image resized(const Image& image, std::uint32_t height, std::uint32_t width) {
    Image out = image.width == width ? image : resized_across(image, width);
    return image.height == height ? out : resized_down(out, height);
}

// PNG (ISO/IEC 15948) of 8 bits without filters; zlib alone does it, which is always there.

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
