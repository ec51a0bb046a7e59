// SPDX-License-Identifier: Apache-2.0
// Pictures in memory: decoded from untrusted bytes, made grey or coloured, resized.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep {

/// Pixels of 8 bits (of 16 in a file the upper 8), rows from top to bottom, channels (1: grey, 3:
/// red, green, blue) together.
struct Image {
    std::uint32_t height = 0, width = 0, channels = 0;
    std::vector<std::uint8_t> pixels;

    std::size_t row_bytes() const { return std::size_t{width} * channels; }
};

/// Why bytes are no image; whoever knows where they are from makes an Error of it.
class BadImage : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// A format whose library was not there when this program was built.
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

/// PNG, JPEG, TIFF or PNM (P5, P6), by its first bytes. At most 2^26 pixels; what is cut
/// short, damaged, CMYK, or of several pages is refused. Throws BadImage, or NoDecoder. Any thread.
Image decode_image(std::span<const std::byte> content);

Image decode_png(std::span<const std::byte> content);
Image decode_jpeg(std::span<const std::byte> content);
Image decode_tiff(std::span<const std::byte> content);
Image decode_pnm(std::span<const std::byte> content);

/// Bits of a channel by what the header says, of PNG and TIFF; 8 where it does not say or is
/// damaged.
std::uint32_t channel_bits(std::span<const std::byte> content);
std::uint32_t tiff_channel_bits(std::span<const std::byte> content);

/// A PNG file's content.
std::string encoded_png(const Image& image);

/// Whether this build has libtiff (LOCKSTEP_WITH_TIFF).
bool reads_tiff();

/// Throws BadImage unless there are between 1 and 2^26 pixels.
void check_dimensions(std::uint64_t height, std::uint64_t width);

/// The image with `channels` 1 or 3. Grey is ITU-R BT.601's luma in whole numbers, as Pillow's.
Image with_channels(Image image, std::uint32_t channels);

/// Triangle filter, wider where the image shrinks, in fixed point: Pillow's BILINEAR, bit for bit.
Image resized(const Image& image, std::uint32_t height, std::uint32_t width);

}  // namespace lockstep
