// SPDX-License-Identifier: Apache-2.0
#include "transform/image_runner.hpp"
#include "transform/pixel.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace lockstep {
namespace {

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

}  // namespace

template <class T>
void ImageRunner::stage(std::size_t index, const T* in, const StageDraw& draw, float* out) {
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
void ImageRunner::window(const TransformStage& stage,
                         const T* in,
                         const StageDraw& draw,
                         float* out) {
    const int width = stage.out_width, valid = draw.x_high - draw.x_low;
    const int from = draw.x_step < 0 ? draw.x_begin - (draw.x_high - 1) : draw.x_begin + draw.x_low;
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
void ImageRunner::resize(const TransformStage& stage,
                         const StretchTaps& taps,
                         const T* in,
                         float* out) {
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
void ImageRunner::rotate(const TransformStage& stage,
                         const T* in,
                         const StageDraw& draw,
                         float* out) {
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
void ImageRunner::blur(const TransformStage& stage,
                       const T* in,
                       const StageDraw& draw,
                       float* out) {
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

template void ImageRunner::stage(std::size_t, const std::uint8_t*, const StageDraw&, float*);
template void ImageRunner::stage(std::size_t, const float*, const StageDraw&, float*);

}  // namespace lockstep
