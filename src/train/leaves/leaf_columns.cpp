// SPDX-License-Identifier: Apache-2.0
#include "leaves/leaf_columns.hpp"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>

namespace lockstep {
namespace {

// Where in the image element `tap` of the kernel is, at place `place` of the output.
std::int64_t position(const SlideRule& rule, std::int64_t place, std::int64_t tap) {
    return place * rule.stride - rule.padding + tap * rule.dilation;
}

bool is_inside(std::int64_t position, std::int64_t size) {
    return position >= 0 && position < size;
}

// What one place of the output sees.
struct Window {
    const float* image;
    std::int64_t channels, height, width;
    std::int64_t channel_stride, row_stride, column_stride;
};

void write_window(const Window& window,
                  const SlideRule& rows,
                  const SlideRule& columns,
                  std::int64_t row,
                  std::int64_t column,
                  float* to) {
    const std::int64_t taps = rows.kernel * columns.kernel;
    for (std::int64_t tap = 0; tap < taps; ++tap) {
        const std::int64_t y = position(rows, row, tap / columns.kernel);
        const std::int64_t x = position(columns, column, tap % columns.kernel);
        if (!is_inside(y, window.height) || !is_inside(x, window.width)) {
            for (std::int64_t c = 0; c < window.channels; ++c) to[c * taps + tap] = 0;
            continue;
        }
        const float* from = window.image + y * window.row_stride + x * window.column_stride;
        for (std::int64_t c = 0; c < window.channels; ++c)
            to[c * taps + tap] = from[c * window.channel_stride];
    }
}

}  // namespace

at::Tensor image_columns(const at::Tensor& images,
                         const SlideRule& rows,
                         const SlideRule& columns) {
    const std::int64_t width = images.size(1) * rows.kernel * columns.kernel;
    const std::int64_t places = rows.places * columns.places;
    const at::Tensor all = at::empty({images.size(0) * places, width}, images.options());
    const float* const first = images.const_data_ptr<float>();
    float* const to = all.mutable_data_ptr<float>();
    at::parallel_for(0, all.size(0), 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t k = begin; k < end; ++k)
            write_window({.image = first + k / places * images.stride(0),
                          .channels = images.size(1),
                          .height = images.size(2),
                          .width = images.size(3),
                          .channel_stride = images.stride(1),
                          .row_stride = images.stride(2),
                          .column_stride = images.stride(3)},
                         rows,
                         columns,
                         k % places / columns.places,
                         k % columns.places,
                         to + k * width);
    });
    return all;
}

}  // namespace lockstep
