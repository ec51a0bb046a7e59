// SPDX-License-Identifier: Apache-2.0
#include "image.hpp"

#include <array>
#include <csetjmp>
#include <cstring>

#include <png.h>

namespace lockstep {
namespace {

constexpr png_alloc_size_t most_chunk_bytes = 8u << 20;
constexpr int most_chunks = 1000;

// libpng reports errors by longjmp: functions that call setjmp have nothing to destroy.
class PngReader {
  public:
    PngReader(std::span<const std::byte> content, Pixels pixels)
        : content_(content), has_numbers_(pixels == Pixels::numbers) {
        png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, on_warning);
        if (png_ != nullptr) info_ = png_create_info_struct(png_);
        if (info_ == nullptr) {
            png_destroy_read_struct(&png_, &info_, nullptr);
            throw std::bad_alloc();
        }
    }
    ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
    PngReader& operator=(PngReader&&) = delete;

    Image decode() {
        if (!read_header()) throw BadImage(reason_.data());
        check_dimensions(png_get_image_height(png_, info_), png_get_image_width(png_, info_));
        if (!prepare()) throw BadImage(reason_.data());
        Image image{png_get_image_height(png_, info_),
                    png_get_image_width(png_, info_),
                    png_get_channels(png_, info_),
                    {}};
        image.pixels.resize(image.height * image.row_bytes());
        rows_.resize(image.height);
        for (std::size_t y = 0; y < rows_.size(); ++y)
            rows_[y] = image.pixels.data() + y * image.row_bytes();
        if (png_get_rowbytes(png_, info_) != image.row_bytes() || !read_pixels())
            throw BadImage(reason_.data());
        return image;
    }

  private:
    bool read_header() {
        if (setjmp(png_jmpbuf(png_)) != 0) return false;
        png_set_read_fn(png_, this, on_read);
        png_set_chunk_malloc_max(png_, most_chunk_bytes);
        png_set_chunk_cache_max(png_, most_chunks);
        png_read_info(png_, info_);
        return true;
    }

    // To 8 bits of grey or of red, green and blue, without transparency; of 16 the upper 8. Numbers
    // keep their values.
    bool prepare() {
        if (setjmp(png_jmpbuf(png_)) != 0) return false;
        const int type = png_get_color_type(png_, info_);
        if (has_numbers_) png_set_packing(png_);
        if (type == PNG_COLOR_TYPE_PALETTE && !has_numbers_) png_set_palette_to_rgb(png_);
        if (type == PNG_COLOR_TYPE_GRAY && !has_numbers_) png_set_expand_gray_1_2_4_to_8(png_);
        png_set_strip_16(png_);
        png_set_strip_alpha(png_);
        png_set_interlace_handling(png_);
        png_read_update_info(png_, info_);
        return true;
    }

    bool read_pixels() {
        if (setjmp(png_jmpbuf(png_)) != 0) return false;
        png_read_image(png_, rows_.data());
        png_read_end(png_, nullptr);
        return true;
    }

    static void on_read(png_structp png, png_bytep out, png_size_t bytes) {
        auto& self = *static_cast<PngReader*>(png_get_io_ptr(png));
        if (bytes > self.content_.size()) png_error(png, "it is cut short");
        std::memcpy(out, self.content_.data(), bytes);
        self.content_ = self.content_.subspan(bytes);
    }
    [[noreturn]] static void on_error(png_structp png, png_const_charp why) {
        auto& self = *static_cast<PngReader*>(png_get_error_ptr(png));
        std::strncpy(self.reason_.data(), why, self.reason_.size() - 1);
        png_longjmp(png, 1);
    }
    static void on_warning(png_structp, png_const_charp) {}

    std::span<const std::byte> content_;
    bool has_numbers_;
    png_structp png_ = nullptr;
    png_infop info_ = nullptr;
    std::vector<png_bytep> rows_;
    std::array<char, 128> reason_{"libpng and its header do not agree"};
};

}  // namespace

Image decode_png(std::span<const std::byte> content, Pixels pixels) {
    return PngReader(content, pixels).decode();
}

}  // namespace lockstep
