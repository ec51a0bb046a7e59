// SPDX-License-Identifier: Apache-2.0
#include "image.hpp"

#include <array>
#include <csetjmp>
#include <cstdio>

// jpeglib.h needs what <cstdio> declares.
#include <jpeglib.h>
// Numbers of the library's messages.
#include <jerror.h>

namespace lockstep {
namespace {

constexpr int most_scans = 500;  // a progressive file can ask for the same work again and again

// Warnings that do not mean that pixels are missing or wrong.
bool is_harmless(int message) {
    return message == JWRN_EXTRANEOUS_DATA || message == JWRN_ADOBE_XFORM ||
           message == JWRN_JFIF_MAJOR;
}

// libjpeg reports errors through a function that must not return: functions that call setjmp have
// nothing to destroy.
class JpegReader {
  public:
    explicit JpegReader(std::span<const std::byte> content) : content_(content) {
        jpeg_.err = jpeg_std_error(&errors_);
        errors_.error_exit = on_error;
        errors_.emit_message = on_message;
        errors_.output_message = [](j_common_ptr) {};
        progress_.progress_monitor = on_progress;
        jpeg_.client_data = this;
        if (!create()) throw std::bad_alloc();
    }
    ~JpegReader() { jpeg_destroy_decompress(&jpeg_); }
    JpegReader& operator=(JpegReader&&) = delete;

    Image decode() {
        if (!read_header()) throw BadImage(reason_.data());
        check_dimensions(jpeg_.image_height, jpeg_.image_width);
        const bool is_gray = jpeg_.jpeg_color_space == JCS_GRAYSCALE;
        if (!is_gray && jpeg_.jpeg_color_space != JCS_YCbCr && jpeg_.jpeg_color_space != JCS_RGB)
            throw BadImage("its colours are CMYK or unknown; grey and RGB can be packed");
        jpeg_.out_color_space = is_gray ? JCS_GRAYSCALE : JCS_RGB;
        jpeg_.dct_method = JDCT_ISLOW;
        Image image{jpeg_.image_height, jpeg_.image_width, is_gray ? 1u : 3u, {}};
        image.pixels.resize(image.height * image.row_bytes());
        if (!read_pixels(image.pixels.data(), image.row_bytes())) throw BadImage(reason_.data());
        return image;
    }

  private:
    bool create() {
        if (setjmp(jump_) != 0) return false;
        jpeg_create_decompress(&jpeg_);
        jpeg_.progress = &progress_;
        return true;
    }

    bool read_header() {
        if (setjmp(jump_) != 0) return false;
        jpeg_mem_src(&jpeg_,
                     reinterpret_cast<const unsigned char*>(content_.data()),
                     static_cast<unsigned long>(content_.size()));
        jpeg_read_header(&jpeg_, TRUE);
        return true;
    }

    bool read_pixels(std::uint8_t* out, std::size_t row_bytes) {
        if (setjmp(jump_) != 0) return false;
        jpeg_start_decompress(&jpeg_);
        while (jpeg_.output_scanline < jpeg_.output_height) {
            JSAMPROW row = out + jpeg_.output_scanline * row_bytes;
            jpeg_read_scanlines(&jpeg_, &row, 1);
        }
        jpeg_finish_decompress(&jpeg_);
        return true;
    }

    static JpegReader& self(j_common_ptr jpeg) {
        return *static_cast<JpegReader*>(jpeg->client_data);
    }
    [[noreturn]] static void on_error(j_common_ptr jpeg) {
        jpeg->err->format_message(jpeg, self(jpeg).reason_.data());
        longjmp(self(jpeg).jump_, 1);
    }
    static void on_message(j_common_ptr jpeg, int level) {
        if (level < 0 && !is_harmless(jpeg->err->msg_code)) on_error(jpeg);
    }
    static void on_progress(j_common_ptr jpeg) {
        if (self(jpeg).jpeg_.input_scan_number <= most_scans) return;
        std::snprintf(self(jpeg).reason_.data(),
                      self(jpeg).reason_.size(),
                      "it has more than %d scans",
                      most_scans);
        longjmp(self(jpeg).jump_, 1);
    }

    std::span<const std::byte> content_;
    jpeg_decompress_struct jpeg_{};
    jpeg_error_mgr errors_{};
    jpeg_progress_mgr progress_{};
    std::jmp_buf jump_{};
    std::array<char, JMSG_LENGTH_MAX> reason_{};
};

}  // namespace

Image decode_jpeg(std::span<const std::byte> content) {
    return JpegReader(content).decode();
}

}  // namespace lockstep
