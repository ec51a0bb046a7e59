// SPDX-License-Identifier: Apache-2.0
// Images in memory: decoded from untrusted bytes, converted to grey or colour, resized.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep {

/// Pixels of 8 bits (of 16-bit files the upper 8), rows from top to bottom, channels (1: grey, 3:
/// red, green, blue) together.
struct Image {
    std::uint32_t height = 0, width = 0, channels = 0;
    std::vector<std::uint8_t> pixels;

    std::size_t row_bytes() const { return std::size_t{width} * channels; }
    bool operator==(const Image&) const = default;
};

/// The reason why bytes are no image; the caller, who knows their source, makes an Error of it.
class BadImage : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// A format whose library was missing when this program was built.
class NoDecoder : public std::runtime_error {
  public:
    NoDecoder(const std::string& format, const std::string& library)
        : std::runtime_error("it is a " + format + " file, and this program was built without " +
                             library),
          fix_("build Lockstep where " + library + "'s headers are (Debian: " + library +
               "-dev), with -DLOCKSTEP_WITH_" + format + "=ON; or convert the images to PPM") {}
    const std::string& fix() const { return fix_; }

  private:
    std::string fix_;
};

/// Decodes PNG, JPEG, TIFF or PNM (P5, P6), by its first bytes. At most 2^26 pixels; incomplete,
/// damaged, CMYK and multi-page images are refused. Throws BadImage, or NoDecoder. Any thread.
Image decode_image(std::span<const std::byte> content);

/// Decodes a mask: PNG, TIFF or PGM without scaling, palette indices as they are. Throws as above.
Image decode_numbers(std::span<const std::byte> content);

/// What a file of less than 8 bits or with a palette becomes.
enum class Pixels { colours, numbers };

Image decode_png(std::span<const std::byte> content, Pixels pixels = Pixels::colours);
Image decode_jpeg(std::span<const std::byte> content);
Image decode_tiff(std::span<const std::byte> content, Pixels pixels = Pixels::colours);

/// Returns the bits of a channel by the header, for PNG and TIFF; 8 if it does not tell or is
/// damaged.
std::uint32_t channel_bits(std::span<const std::byte> content);
std::uint32_t tiff_channel_bits(std::span<const std::byte> content);

/// Returns true for a PNG whose header says that it has an alpha channel.
bool has_alpha(std::span<const std::byte> content);

/// Returns the content of a PNG file.
std::string encoded_png(const Image& image);

/// Returns true if this build has libtiff (LOCKSTEP_WITH_TIFF).
bool reads_tiff();

/// Throws BadImage unless there are between 1 and 2^26 pixels.
void check_dimensions(std::uint64_t height, std::uint64_t width);

/// Returns the image with `channels` 1 or 3. Grey is ITU-R BT.601's luma in whole numbers, as
/// Pillow's.
Image with_channels(Image image, std::uint32_t channels);

/// Resizes with a triangle filter, wider where the image shrinks, in fixed point: Pillow's
/// BILINEAR, bit for bit.
Image resized(const Image& image, std::uint32_t height, std::uint32_t width);

}  // namespace lockstep
