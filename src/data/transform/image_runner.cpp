// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"

#include "bound.hpp"
#include "pixel.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <utility>

namespace lockstep {
namespace {

/// Pixels that are laid out at a time, so that they stay in the first-level cache.
constexpr int chunk_pixels = 1024;

std::size_t out_values(const TransformStage& stage) {
    return static_cast<std::size_t>(stage.out_height) * static_cast<std::size_t>(stage.out_width);
}

bool is_whole(const StageDraw& draw, const TransformStage& stage) {
    return draw.x_step == 1 && draw.x_low == 0 && draw.x_high == stage.out_width &&
           stage.in_width == stage.out_width && draw.y_low == 0 && draw.y_high == stage.out_height;
}

/// The two rows that were stretched last: an enlarged image needs each many times.
class TwoRows {
  public:
    TwoRows(float* first, float* second) : rows_{first, second} {}

    /// Rows `first` and `second` (the same or the next), made by stretch(row, to) if not there.
    template <class Stretch>
    std::pair<const float*, const float*> of(int first, int second, Stretch&& stretch) {
        if (have_[0] != first && have_[1] == first) {
            std::swap(rows_[0], rows_[1]);
            std::swap(have_[0], have_[1]);
        }
        if (have_[0] != first) stretch(first, rows_[0]);
        have_[0] = first;
        if (second == first) return {rows_[0], rows_[0]};
        if (have_[1] != second) stretch(second, rows_[1]);
        have_[1] = second;
        return {rows_[0], rows_[1]};
    }

  private:
    std::array<float*, 2> rows_;
    std::array<int, 2> have_ = {-1, -1};
};

/// Values of one channel that `stage` is given.
std::size_t in_values(const TransformStage& stage) {
    return static_cast<std::size_t>(stage.in_height) * static_cast<std::size_t>(stage.in_width);
}

class ImageRunner {
  public:
    ImageRunner(const BoundTransform& bound, PixelLayout layout)
        : bound_(bound), kernels_(*bound.rows), layout_(layout) {}

    /// `image` u8 or f32 [C, H, W], `out` f32 of one output image in the layout.
    template <class T>
    void run(const T* image, std::span<const StageDraw> draws, float* out) {
        if constexpr (std::is_same_v<T, std::uint8_t>)
            if (draws.size() == 1 && bound_.plan.stages[0].kind == StageKind::window)
                return window_to_out(image, draws[0], out);
        planes_.resize(bound_.largest_image());
        other_planes_.resize(planes_.size());
        stage(0, image, draws[0], planes_.data());
        for (std::size_t i = 1; i < draws.size(); ++i) {
            stage<float>(i, planes_.data(), draws[i], other_planes_.data());
            planes_.swap(other_planes_);
        }
        lay_out(planes_.data(), out);
    }

  private:
    /// A single window of bytes: cut, mirrored, normalised and laid out some rows at a time.
    void window_to_out(const std::uint8_t* image, const StageDraw& draw, float* out) {
        const TransformStage& stage = bound_.plan.stages[0];
        const int width = stage.out_width, height = stage.out_height;
        const int rows_of_chunk = std::max(1, chunk_pixels / width);
        const bool is_planar = layout_ == PixelLayout::nchw || stage.channels == 1;
        for (int y = 0; y < height; y += rows_of_chunk) {
            const int rows = std::min(rows_of_chunk, height - y), pixels = rows * width;
            const auto count = static_cast<std::size_t>(pixels);
            const std::size_t first = static_cast<std::size_t>(y) * static_cast<std::size_t>(width);
            const auto channels = static_cast<std::size_t>(stage.channels);
            float* const chunk = is_planar ? nullptr : room(channels * count).data();
            for (std::size_t c = 0; c < channels; ++c) {
                const std::uint8_t* bytes =
                    window_bytes(image + c * in_values(stage), draw, y, rows);
                float* to = is_planar ? out + c * out_values(stage) + first : chunk + c * count;
                kernels_.normalise_bytes(bytes, to, pixels, bound_.mean[c], bound_.scale[c]);
            }
            if (!is_planar) interleave(chunk, pixels, out + first * channels);
        }
        set_cut(draw, out);
    }

    const std::uint8_t* window_bytes(const std::uint8_t* plane,
                                     const StageDraw& draw,
                                     int first_row,
                                     int rows) {
        const TransformStage& stage = bound_.plan.stages[0];
        const int width = stage.out_width, valid = draw.x_high - draw.x_low;
        const bool is_mirrored = draw.x_step < 0;
        if (is_whole(draw, stage)) return plane + (first_row + draw.y_begin) * width;
        const auto bytes = static_cast<std::size_t>(rows) * static_cast<std::size_t>(width);
        bytes_.resize(bytes);
        std::memset(bytes_.data(), 0, bytes);
        // A mirrored chunk is gathered from its end and then reversed at once.
        const int into = is_mirrored ? width - draw.x_high : draw.x_low;
        const int from = is_mirrored ? draw.x_begin - (draw.x_high - 1) : draw.x_begin + draw.x_low;
        const int begin = std::max(first_row, draw.y_low);
        const int end = std::min(first_row + rows, draw.y_high);
        for (int y = begin; valid > 0 && y < end; ++y) {
            const int row = is_mirrored ? first_row + rows - 1 - y : y - first_row;
            std::memcpy(bytes_.data() + row * width + into,
                        plane + std::ptrdiff_t{y + draw.y_begin} * stage.in_width + from,
                        static_cast<std::size_t>(valid));
        }
        if (!is_mirrored) return bytes_.data();
        reversed_.resize(bytes);
        kernels_.reverse_bytes(bytes_.data(), reversed_.data(), static_cast<int>(bytes));
        return reversed_.data();
    }

    void set_cut(const StageDraw& draw, float* out) const {
        const TransformStage& stage = bound_.plan.stages[0];
        const std::ptrdiff_t channels = stage.channels, width = stage.out_width;
        const bool is_planar = layout_ == PixelLayout::nchw;
        for (std::ptrdiff_t c = 0; c < channels; ++c) {
            const float mean = bound_.mean[static_cast<std::size_t>(c)];
            const float value =
                pixel::normalised(mean, mean, bound_.scale[static_cast<std::size_t>(c)]);
            for (std::ptrdiff_t y = draw.cut_top; y < draw.cut_bottom; ++y)
                for (std::ptrdiff_t x = draw.cut_left; x < draw.cut_right; ++x)
                    out[is_planar ? (c * stage.out_height + y) * width + x
                                  : (y * width + x) * channels + c] = value;
        }
    }

    template <class T>
    void stage(std::size_t index, const T* in, const StageDraw& draw, float* out) {
        const TransformStage& stage = bound_.plan.stages[index];
        switch (stage.kind) {
            case StageKind::window:
                return window(stage, in, draw, out);
            case StageKind::resize:
                return resize(stage, bound_.taps[index], in, out);
            case StageKind::rotate:
                return rotate(stage, in, draw, out);
            case StageKind::blur:
                return blur(stage, in, draw, out);
        }
    }

    template <class T>
    void window(const TransformStage& stage, const T* in, const StageDraw& draw, float* out) {
        const int width = stage.out_width, valid = draw.x_high - draw.x_low;
        const int from =
            draw.x_step < 0 ? draw.x_begin - (draw.x_high - 1) : draw.x_begin + draw.x_low;
        float* const row = room(static_cast<std::size_t>(std::max(valid, 1))).data();
        for (int c = 0; c < stage.channels; ++c, in += in_values(stage))
            for (int y = 0; y < stage.out_height; ++y, out += width) {
                const bool has_pixels = y >= draw.y_low && y < draw.y_high && valid > 0;
                std::fill_n(out, width, 0.0f);
                if (has_pixels) {
                    const T* source = in + std::ptrdiff_t{y + draw.y_begin} * stage.in_width + from;
                    const float* pixels = floats(source, valid, row);
                    if (draw.x_step < 0)
                        kernels_.reverse_floats(pixels, out + draw.x_low, valid);
                    else
                        std::copy_n(pixels, valid, out + draw.x_low);
                }
                if (y >= draw.cut_top && y < draw.cut_bottom)
                    std::fill(out + draw.cut_left,
                              out + draw.cut_right,
                              bound_.mean[static_cast<std::size_t>(c)]);
            }
    }

    template <class T>
    void resize(const TransformStage& stage, const StretchTaps& taps, const T* in, float* out) {
        const auto width = static_cast<std::size_t>(stage.out_width);
        float* const buffers = room(2 * width + static_cast<std::size_t>(stage.in_width)).data();
        for (int c = 0; c < stage.channels; ++c, in += in_values(stage)) {
            TwoRows stretched(buffers, buffers + width);
            const auto stretch = [&](int y, float* to) {
                const T* row = in + std::ptrdiff_t{y} * stage.in_width;
                kernels_.stretch(floats(row, stage.in_width, buffers + 2 * width),
                                 taps.first.data(),
                                 taps.second.data(),
                                 taps.share.data(),
                                 to,
                                 stage.out_width);
            };
            for (int y = 0; y < stage.out_height; ++y, out += width) {
                const pixel::Tap tap = pixel::resize_tap(y, stage.in_height, stage.out_height);
                const auto [first, second] = stretched.of(tap.first, tap.second, stretch);
                kernels_.blend_rows(first, second, tap.share, out, stage.out_width);
            }
        }
    }

    template <class T>
    void rotate(const TransformStage& stage, const T* in, const StageDraw& draw, float* out) {
        const auto height = static_cast<std::size_t>(stage.in_height);
        const auto width = static_cast<std::size_t>(stage.in_width);
        const auto channels = static_cast<std::size_t>(stage.channels);
        const std::size_t stride = width + 3, plane = stride * (height + 3);
        // With zeros around it, no neighbour of a pixel is out of bounds.
        const std::span<float> all = room(channels * plane + 2 * width);
        std::ranges::fill(all, 0.0f);
        for (std::size_t c = 0; c < channels; ++c)
            for (std::size_t y = 0; y < height; ++y) {
                float* to = all.data() + c * plane + (y + 1) * stride + 1;
                const float* row = floats(in + (c * height + y) * width, stage.in_width, to);
                if (row != to) std::copy_n(row, width, to);
            }
        places_.resize(width);
        float* const share_y = all.data() + channels * plane;
        float* const share_x = share_y + width;
        for (std::size_t y = 0; y < height; ++y) {
            kernels_.rotate_row({stage.in_height,
                                 stage.in_width,
                                 static_cast<int>(y),
                                 static_cast<int>(stride),
                                 draw.cosine,
                                 draw.sine,
                                 places_.data(),
                                 share_y,
                                 share_x});
            for (std::size_t c = 0; c < channels; ++c)
                kernels_.sample(all.data() + c * plane,
                                static_cast<int>(stride),
                                places_.data(),
                                share_y,
                                share_x,
                                out + (c * height + y) * width,
                                stage.in_width);
        }
    }

    template <class T>
    void blur(const TransformStage& stage, const T* in, const StageDraw& draw, float* out) {
        const int height = stage.in_height, width = stage.in_width, radius = stage.radius;
        const auto values = in_values(stage);
        float* const blurred = room(values + static_cast<std::size_t>(width + 2 * radius)).data();
        float* const padded = blurred + values + radius;
        for (int c = 0; c < stage.channels; ++c, in += values) {
            for (int y = 0; y < height; ++y) {
                const std::ptrdiff_t first = std::ptrdiff_t{y} * width;
                const float* row = floats(in + first, width, padded);
                if (row != padded) std::copy_n(row, width, padded);
                for (int i = 1; i <= radius; ++i) {
                    padded[-i] = padded[pixel::reflected(-i, width)];
                    padded[width - 1 + i] = padded[pixel::reflected(width - 1 + i, width)];
                }
                kernels_.blur_row(padded, draw.weights, radius, blurred + first, width);
            }
            for (int y = 0; y < height; ++y, out += width) {
                std::array<const float*, 2 * most_blur_radius + 1> rows;
                for (int i = -radius; i <= radius; ++i)
                    rows[static_cast<std::size_t>(radius + i)] =
                        blurred + std::ptrdiff_t{pixel::reflected(y + i, height)} * width;
                kernels_.blur_column(rows.data(), draw.weights, radius, out, width);
            }
        }
    }

    const float* floats(const std::uint8_t* row, int count, float* room) const {
        kernels_.to_floats(row, room, count);
        return room;
    }

    const float* floats(const float* row, int, float*) const { return row; }

    void lay_out(const float* planes, float* out) {
        const auto channels = static_cast<std::size_t>(bound_.output.channels);
        const std::size_t pixels = bound_.output.values() / channels;
        const bool is_planar = layout_ == PixelLayout::nchw || channels == 1;
        for (std::size_t first = 0; first < pixels; first += chunk_pixels) {
            const std::size_t count = std::min<std::size_t>(chunk_pixels, pixels - first);
            float* const chunk = is_planar ? nullptr : room(channels * count).data();
            for (std::size_t c = 0; c < channels; ++c)
                kernels_.normalise_floats(planes + c * pixels + first,
                                          is_planar ? out + c * pixels + first : chunk + c * count,
                                          static_cast<int>(count),
                                          bound_.mean[c],
                                          bound_.scale[c]);
            if (!is_planar) interleave(chunk, static_cast<int>(count), out + first * channels);
        }
    }

    /// Normalised rows of all channels, which lie one after the other, to their place.
    void interleave(const float* rows, int pixels, float* out) const {
        const auto count = static_cast<std::size_t>(pixels);
        const auto channels = static_cast<std::size_t>(bound_.output.channels);
        if (channels == 3) {
            const std::array<const float*, 3> of = {rows, rows + count, rows + 2 * count};
            return kernels_.interleave_3(of.data(), out, pixels);
        }
        for (std::size_t c = 0; c < channels; ++c)
            for (std::size_t i = 0; i < count; ++i) out[i * channels + c] = rows[c * count + i];
    }

    std::span<float> room(std::size_t values) {
        if (room_.size() < values) room_.resize(values);
        return std::span(room_).first(values);
    }

    const BoundTransform& bound_;
    const RowKernels& kernels_;
    PixelLayout layout_;
    std::vector<float> planes_, other_planes_, room_;
    std::vector<std::uint8_t> bytes_, reversed_;
    std::vector<int> places_;
};

template <class T>
void apply_to(const BoundTransform& bound,
              std::span<const T> images,
              std::span<const std::uint64_t> ids,
              TransformKey key,
              PixelLayout layout,
              std::span<float> out,
              int threads) {
    const std::size_t in_values = bound.input.values(), out_values = bound.output.values();
    expect(images.size() == ids.size() * in_values,
           std::is_same_v<T, float> ? "a row of numbers for each sample"
                                    : "a row of bytes for each sample");
    expect(out.size() == ids.size() * out_values, "room for each transformed image");
    share_out(ids.size(), threads, [&](std::size_t begin, std::size_t end) {
        ImageRunner runner(bound, layout);
        std::vector<StageDraw> draws(bound.plan.stages.size());
        for (std::size_t i = begin; i < end; ++i) {
            draw_image(bound.plan, ids[i], key, draws);
            runner.run(images.data() + i * in_values, draws, out.data() + i * out_values);
        }
    });
}

}  // namespace

void ImageTransform::apply(std::span<const std::uint8_t> images,
                           std::span<const std::uint64_t> ids,
                           TransformKey key,
                           PixelLayout layout,
                           std::span<float> out,
                           int threads) const {
    apply_to(*bound_, images, ids, key, layout, out, threads);
}

void ImageTransform::apply(std::span<const float> images,
                           std::span<const std::uint64_t> ids,
                           TransformKey key,
                           PixelLayout layout,
                           std::span<float> out) const {
    apply_to(*bound_, images, ids, key, layout, out, 1);
}

}  // namespace lockstep
