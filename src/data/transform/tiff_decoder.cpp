// SPDX-License-Identifier: Apache-2.0
// TIFF is many formats. Accepted is what becomes 8 bits of grey or of red, green and blue with no
// more loss than for PNG; all other forms (numbers, bands, pages, CMYK) are refused by name.
// libtiff reads from memory, may allocate only a limited size at once, and each of its errors ends
// the decoding. So do its warnings once pixels are read; earlier ones are about irrelevant tags.

#include "image.hpp"

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include <fmt/format.h>
#include <tiffio.h>

namespace lockstep {
namespace {

// Converts pixels as TIFF stores them to bytes: samples of 1 to 16 bits, palettes, orientations.

/// The form of pixels in a page's rows or tiles.
struct TiffSamples {
    std::uint32_t bits = 8;       ///< 1, 2, 4, 8, or 16 in this machine's byte order; upper first
    std::uint32_t per_pixel = 1;  ///< beside each other in a row; those beyond colours are dropped
    bool is_inverted = false;     ///< 0 is white
    bool are_numbers = false;     ///< neither stretched nor inverted, without a palette
    std::vector<std::array<std::uint8_t, 3>> palette;  ///< if not empty, samples are places in it

    std::size_t row_bytes(std::uint32_t pixels) const {
        return (std::size_t{pixels} * per_pixel * bits + 7) / 8;
    }
};

/// The destination of a row's pixels.
struct PixelRun {
    std::uint32_t y = 0, x = 0, pixels = 0;
    std::uint32_t first_channel = 0, channels = 0;  ///< channels in the row
};

std::uint32_t sample_at(const std::uint8_t* row, std::size_t index, std::uint32_t bits) {
    if (bits == 8) return row[index];
    if (bits == 16) {
        std::uint16_t sample = 0;
        std::memcpy(&sample, row + 2 * index, sizeof sample);
        return sample;
    }
    const std::size_t first_bit = index * bits;
    return (row[first_bit / 8] >> (8 - bits - first_bit % 8)) & ((1u << bits) - 1);
}

std::uint8_t byte_of(std::uint32_t sample, std::uint32_t bits) {
    if (bits == 16) return static_cast<std::uint8_t>(sample >> 8);
    return static_cast<std::uint8_t>(bits == 8 ? sample : sample * 255 / ((1u << bits) - 1));
}

/// Of 16 bits the upper 8 are kept, less than 8 are stretched to 0 to 255. `row` has row_bytes() of
/// the run's pixels, which lie within the image.
void put_row(const TiffSamples& samples, const std::uint8_t* row, PixelRun run, Image& image) {
    const std::uint8_t flip = samples.is_inverted && !samples.are_numbers ? 0xff : 0;
    std::uint8_t* out =
        image.pixels.data() + (std::size_t{run.y} * image.width + run.x) * image.channels;
    for (std::size_t i = 0; i < run.pixels; ++i, out += image.channels) {
        const std::size_t first = i * samples.per_pixel;
        if (!samples.palette.empty()) {
            std::ranges::copy(samples.palette[sample_at(row, first, samples.bits)], out);
            continue;
        }
        for (std::uint32_t c = 0; c < run.channels; ++c) {
            const std::uint32_t sample = sample_at(row, first + c, samples.bits);
            out[run.first_channel + c] = samples.are_numbers ? static_cast<std::uint8_t>(sample)
                                                             : byte_of(sample, samples.bits) ^ flip;
        }
    }
}

/// The image as it is to be seen; `orientation` is TIFF's tag: 1 (as stored) to 8. It says at which
/// sides of what is to be seen the first row and the first column lie: from 5 on the first row is
/// at the left or right.
Image oriented(Image stored, std::uint32_t orientation) {
    if (orientation <= 1 || orientation > 8) return stored;
    const bool swaps = orientation >= 5;
    const bool flips_rows =
        orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    const bool flips_columns =
        orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
    Image seen = stored;
    if (swaps) std::swap(seen.height, seen.width);
    std::uint8_t* out = seen.pixels.data();
    for (std::size_t y = 0; y < seen.height; ++y)
        for (std::size_t x = 0; x < seen.width; ++x, out += seen.channels) {
            const std::size_t row = swaps ? x : y, column = swaps ? y : x;
            const std::size_t from_row = flips_rows ? stored.height - 1 - row : row;
            const std::size_t from_column = flips_columns ? stored.width - 1 - column : column;
            std::copy_n(stored.pixels.begin() +
                            static_cast<std::ptrdiff_t>((from_row * stored.width + from_column) *
                                                        stored.channels),
                        stored.channels,
                        out);
        }
    return seen;
}

constexpr tmsize_t most_tiff_bytes_at_once = tmsize_t{1} << 30;
constexpr int most_tiff_pages = 64;  // finding out whether they lead in circles takes their square

constexpr std::uint16_t tiff_compressions[] = {COMPRESSION_NONE,
                                               COMPRESSION_CCITTRLE,
                                               COMPRESSION_CCITTFAX3,
                                               COMPRESSION_CCITTFAX4,
                                               COMPRESSION_LZW,
                                               COMPRESSION_JPEG,
                                               COMPRESSION_ADOBE_DEFLATE,
                                               COMPRESSION_DEFLATE,
                                               COMPRESSION_PACKBITS,
                                               COMPRESSION_LZMA,
                                               COMPRESSION_ZSTD,
                                               COMPRESSION_WEBP};

class TiffReader {
  public:
    explicit TiffReader(std::span<const std::byte> content, Pixels pixels = Pixels::colours)
        : content_(content) {
        samples_.are_numbers = pixels == Pixels::numbers;
        const std::unique_ptr<TIFFOpenOptions, void (*)(TIFFOpenOptions*)> options(
            TIFFOpenOptionsAlloc(), TIFFOpenOptionsFree);
        if (!options) throw std::bad_alloc();
        TIFFOpenOptionsSetMaxSingleMemAlloc(options.get(), most_tiff_bytes_at_once);
        TIFFOpenOptionsSetErrorHandlerExtR(options.get(), on_error, this);
        TIFFOpenOptionsSetWarningHandlerExtR(options.get(), on_warning, this);
        tiff_ = TIFFClientOpenExt("it",
                                  "rm",  // without a map of the file
                                  this,
                                  on_read,
                                  on_write,
                                  on_seek,
                                  on_close,
                                  on_size,
                                  nullptr,
                                  nullptr,
                                  options.get());
        if (tiff_ == nullptr) fail();
    }
    ~TiffReader() { TIFFClose(tiff_); }
    TiffReader& operator=(TiffReader&&) = delete;

    Image decode() {
        go_to_only_page();
        check_dimensions(tag<std::uint32_t>(TIFFTAG_IMAGELENGTH),
                         tag<std::uint32_t>(TIFFTAG_IMAGEWIDTH));
        check_storage();
        settle_colours();
        if (has_failed_) fail();
        Image image{tag<std::uint32_t>(TIFFTAG_IMAGELENGTH),
                    tag<std::uint32_t>(TIFFTAG_IMAGEWIDTH),
                    samples_.palette.empty() ? colours_ : 3,
                    {}};
        image.pixels.resize(image.height * image.row_bytes());
        warnings_count_ = true;
        for (std::uint32_t plane = 0; plane < (is_planar_ ? colours_ : 1); ++plane)
            if (TIFFIsTiled(tiff_) != 0)
                read_tiles(plane, image);
            else
                read_rows(plane, image);
        return oriented(std::move(image), tag<std::uint16_t>(TIFFTAG_ORIENTATION));
    }

    std::uint32_t bits() {
        go_to_only_page();
        return tag<std::uint16_t>(TIFFTAG_BITSPERSAMPLE);
    }

  private:
    template <class Number>
    Number tag(ttag_t name) {
        Number value = 0;
        TIFFGetFieldDefaulted(tiff_, name, &value);
        return value;
    }

    // Smaller copies and masks of an image are no pages of their own.
    bool is_whole_page() {
        return (tag<std::uint32_t>(TIFFTAG_SUBFILETYPE) &
                (FILETYPE_REDUCEDIMAGE | FILETYPE_MASK)) == 0;
    }

    void go_to_only_page() {
        int whole = is_whole_page() ? 1 : 0, only = 0;
        for (int page = 1; TIFFLastDirectory(tiff_) == 0; ++page) {
            if (page == most_tiff_pages)
                throw BadImage(fmt::format("it has more than {} pages", most_tiff_pages));
            if (TIFFReadDirectory(tiff_) == 0) fail();
            if (is_whole_page() && ++whole == 1) only = page;
        }
        if (whole > 1)
            throw BadImage(
                fmt::format("it has {} pages; files of one image can be packed "
                            "(libtiff's tiffsplit makes such files)",
                            whole));
        if (TIFFSetDirectory(tiff_, static_cast<tdir_t>(only)) == 0) fail();
    }

    void check_storage() {
        const auto compression = tag<std::uint16_t>(TIFFTAG_COMPRESSION);
        if (std::ranges::find(tiff_compressions, compression) == std::end(tiff_compressions) ||
            TIFFIsCODECConfigured(compression) == 0)
            throw BadImage(
                fmt::format("its compression, TIFF's number {}, is not read", compression));
        if (compression == COMPRESSION_JPEG && samples_.are_numbers)
            throw BadImage("JPEG's compression does not keep numbers");
        const auto format = tag<std::uint16_t>(TIFFTAG_SAMPLEFORMAT);
        samples_.bits = tag<std::uint16_t>(TIFFTAG_BITSPERSAMPLE);
        const bool is_known = samples_.bits == 1 || samples_.bits == 2 || samples_.bits == 4 ||
                              samples_.bits == 8 || samples_.bits == 16;
        if (!is_known || (format != SAMPLEFORMAT_UINT && format != SAMPLEFORMAT_VOID))
            throw BadImage(fmt::format(
                "its values are {} of {} bits; whole ones without sign of 1, 2, 4, 8 and 16 bits "
                "can be packed (others from NPY files, with --npy)",
                format == SAMPLEFORMAT_INT ? "numbers with sign"
                : format == SAMPLEFORMAT_UINT || format == SAMPLEFORMAT_VOID
                    ? "numbers"
                    : "real or complex numbers",
                samples_.bits));
        if (tag<std::uint32_t>(TIFFTAG_IMAGEDEPTH) > 1) throw BadImage("it has several layers");
    }

    void settle_colours() {
        const auto kind = tag<std::uint16_t>(TIFFTAG_PHOTOMETRIC);
        is_planar_ = tag<std::uint16_t>(TIFFTAG_PLANARCONFIG) == PLANARCONFIG_SEPARATE;
        // What JPEG keeps as luma and chroma is handed over as colours.
        const bool is_jpeg_ycbcr =
            kind == PHOTOMETRIC_YCBCR && !is_planar_ && samples_.bits == 8 &&
            tag<std::uint16_t>(TIFFTAG_COMPRESSION) == COMPRESSION_JPEG &&
            TIFFSetField(tiff_, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB) != 0;
        const bool is_palette = kind == PHOTOMETRIC_PALETTE && samples_.bits <= 8;
        samples_.is_inverted = kind == PHOTOMETRIC_MINISWHITE;
        if (kind == PHOTOMETRIC_RGB || is_jpeg_ycbcr)
            colours_ = 3;
        else if (kind != PHOTOMETRIC_MINISBLACK && kind != PHOTOMETRIC_MINISWHITE && !is_palette)
            throw BadImage(
                fmt::format("its colours (TIFF's photometric interpretation {}) are "
                            "neither grey nor RGB nor of a palette",
                            kind));
        if (is_palette && !samples_.are_numbers) read_palette();
        check_samples();
    }

    void read_palette() {
        std::uint16_t *red = nullptr, *green = nullptr, *blue = nullptr;
        if (TIFFGetField(tiff_, TIFFTAG_COLORMAP, &red, &green, &blue) == 0)
            throw BadImage("its palette is missing");
        for (std::size_t i = 0; i < std::size_t{1} << samples_.bits; ++i)
            samples_.palette.push_back({static_cast<std::uint8_t>(red[i] >> 8),
                                        static_cast<std::uint8_t>(green[i] >> 8),
                                        static_cast<std::uint8_t>(blue[i] >> 8)});
    }

    // Transparency is dropped, as of PNG; other bands would be lost.
    void check_samples() {
        std::uint16_t count = 0, *kinds = nullptr;
        TIFFGetFieldDefaulted(tiff_, TIFFTAG_EXTRASAMPLES, &count, &kinds);
        const std::uint32_t all = tag<std::uint16_t>(TIFFTAG_SAMPLESPERPIXEL);
        const bool has_alpha = count == 1 && (kinds[0] == EXTRASAMPLE_ASSOCALPHA ||
                                              kinds[0] == EXTRASAMPLE_UNASSALPHA);
        if (all != colours_ + (has_alpha ? 1 : 0))
            throw BadImage(
                fmt::format("it has {} values for each pixel; 1 (grey) or 3 (RGB) can be packed, "
                            "with transparency that is marked as such (others from NPY files, with "
                            "--npy)",
                            all));
        samples_.per_pixel = is_planar_ ? 1 : all;
    }

    PixelRun run_of(std::uint32_t plane) const {
        return {.first_channel = plane, .channels = is_planar_ ? 1 : colours_};
    }

    void read_rows(std::uint32_t plane, Image& image) {
        const auto bytes = buffer_bytes(TIFFScanlineSize64(tiff_), samples_.row_bytes(image.width));
        std::vector<std::uint8_t> row(bytes);
        PixelRun run = run_of(plane);
        run.pixels = image.width;
        for (run.y = 0; run.y < image.height; ++run.y) {
            const int done =
                TIFFReadScanline(tiff_, row.data(), run.y, static_cast<std::uint16_t>(plane));
            if (done != 1 || has_failed_) fail();
            put_row(samples_, row.data(), run, image);
        }
    }

    void read_tiles(std::uint32_t plane, Image& image) {
        const auto height = tag<std::uint32_t>(TIFFTAG_TILELENGTH),
                   width = tag<std::uint32_t>(TIFFTAG_TILEWIDTH);
        check_dimensions(height, width);
        const std::size_t row_bytes = samples_.row_bytes(width);
        std::vector<std::uint8_t> tile(
            buffer_bytes(TIFFTileSize64(tiff_), std::size_t{height} * row_bytes));
        PixelRun run = run_of(plane);
        for (std::uint32_t top = 0; top < image.height; top += height)
            for (run.x = 0; run.x < image.width; run.x += width) {
                const tmsize_t got = TIFFReadTile(
                    tiff_, tile.data(), run.x, top, 0, static_cast<std::uint16_t>(plane));
                if (got < 0 || has_failed_) fail();
                run.pixels = std::min(width, image.width - run.x);
                const std::uint32_t rows = std::min(height, image.height - top);
                for (std::uint32_t y = 0; y < rows; ++y) {
                    run.y = top + y;
                    put_row(samples_, tile.data() + y * row_bytes, run, image);
                }
            }
    }

    // Returns the bytes that libtiff writes, of which `needed` are used.
    std::size_t buffer_bytes(std::uint64_t said, std::size_t needed) {
        if (said < needed || said > std::uint64_t{most_tiff_bytes_at_once}) fail();
        return said;
    }

    [[noreturn]] void fail() const { throw BadImage(reason_.data()); }

    static TiffReader& self(void* handle) { return *static_cast<TiffReader*>(handle); }
    static tmsize_t on_read(thandle_t handle, void* out, tmsize_t bytes) {
        TiffReader& reader = self(handle);
        const auto rest = reader.content_.subspan(std::min(reader.at_, reader.content_.size()));
        const std::size_t count = std::min(rest.size(), static_cast<std::size_t>(bytes));
        if (count > 0) std::memcpy(out, rest.data(), count);
        reader.at_ += count;
        return static_cast<tmsize_t>(count);
    }
    static tmsize_t on_write(thandle_t, void*, tmsize_t) { return 0; }
    static toff_t on_seek(thandle_t handle, toff_t offset, int from) {
        TiffReader& reader = self(handle);
        reader.at_ = static_cast<std::size_t>(offset) + (from == SEEK_CUR   ? reader.at_
                                                         : from == SEEK_END ? reader.content_.size()
                                                                            : 0);
        return reader.at_;
    }
    static int on_close(thandle_t) { return 0; }
    static toff_t on_size(thandle_t handle) { return self(handle).content_.size(); }

    // The first one says what is wrong; those after it follow from it.
    static int on_error(TIFF*, void* user, const char*, const char* format, va_list words) {
        TiffReader& reader = self(user);
        if (!reader.has_failed_)
            std::vsnprintf(reader.reason_.data(), reader.reason_.size(), format, words);
        reader.has_failed_ = true;
        return 1;
    }
    static int on_warning(
        TIFF* tiff, void* user, const char* module, const char* format, va_list words) {
        return self(user).warnings_count_ ? on_error(tiff, user, module, format, words) : 1;
    }

    std::span<const std::byte> content_;
    std::size_t at_ = 0;
    TIFF* tiff_ = nullptr;
    TiffSamples samples_;
    std::uint32_t colours_ = 1;
    bool is_planar_ = false;  // each colour by itself
    bool has_failed_ = false, warnings_count_ = false;
    std::array<char, 256> reason_{"libtiff and its header do not agree"};
};

}  // namespace

bool reads_tiff() {
    return true;
}

Image decode_tiff(std::span<const std::byte> content, Pixels pixels) {
    return TiffReader(content, pixels).decode();
}

std::uint32_t tiff_channel_bits(std::span<const std::byte> content) {
    try {
        return TiffReader(content).bits();
    } catch (const BadImage&) {
        return 8;
    }
}

}  // namespace lockstep
