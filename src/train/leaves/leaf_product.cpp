// SPDX-License-Identifier: Apache-2.0
#include "leaves/leaf_product.hpp"

#include "lockstep/core/error.hpp"

#include "leaves/product_loops.hpp"

#include <array>
#include <cstdlib>
#include <memory>
#include <new>

#include <ATen/Functions.h>
#include <ATen/Parallel.h>

namespace lockstep {
namespace {

std::size_t supported_products() {
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 1;
    const bool is_wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    return is_wide ? 3 : 2;
#else
    return 1;
#endif
}

struct FreeScratch {
    void operator()(float* memory) const { std::free(memory); }
};
using Scratch = std::unique_ptr<float[], FreeScratch>;

// Whole cache lines, not filled.
Scratch make_scratch(std::size_t count) {
    constexpr std::size_t line = 64;
    const std::size_t bytes = (count * sizeof(float) + line - 1) / line * line;
    Scratch memory(static_cast<float*>(std::aligned_alloc(line, bytes)));
    if (!memory) throw std::bad_alloc();
    return memory;
}

std::size_t rounded_up(std::size_t count, std::size_t unit) {
    return (count + unit - 1) / unit * unit;
}

// Returns the place in the image of element `tap` of the kernel, at place `place` of the output.
std::int64_t position(const SlideRule& rule, std::int64_t place, std::int64_t tap) {
    return place * rule.stride - rule.padding + tap * rule.dilation;
}

bool is_inside(std::int64_t position, std::int64_t size) {
    return position >= 0 && position < size;
}

// The inputs of one place of the output.
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

std::span<const ProductLoop* const> product_loops() {
    static constexpr std::array loops = {
        &baseline::product_loop,
#if defined(__x86_64__)
        &avx2::product_loop,
        &avx512::product_loop,
#endif
    };
    static const std::size_t supported = supported_products();
    return std::span(loops).first(supported);
}

void leaf_product(const RowMatrix& left,
                  const RowMatrix& right,
                  std::span<const std::size_t> leaf_ends,
                  std::span<const int> merges_after,
                  std::span<float* const> outputs) {
    expect(!leaf_ends.empty() && leaf_ends.size() == merges_after.size(), "an order of leaves");
    expect(outputs.size() < deepest_product, "few leaves are pending at once");
    static const ProductLoop loop = *product_loops().back();
    const ProductTask task{.left = left.values,
                           .left_stride = left.columns,
                           .left_columns = left.columns,
                           .right = right.values,
                           .right_stride = right.columns,
                           .right_columns = right.columns,
                           .leaf_ends = leaf_ends.data(),
                           .merges_after = merges_after.data(),
                           .leaves = leaf_ends.size(),
                           .outputs = outputs.data(),
                           .output_count = outputs.size()};
    const std::size_t rows = leaf_ends.back();
    const Scratch packed = make_scratch(rounded_up(left.columns, loop.tile_rows) * rows);
    loop.pack_left(task, packed.get());
    const std::size_t panels = rounded_up(right.columns, loop.tile_columns) / loop.tile_columns;
    at::parallel_for(0, static_cast<std::int64_t>(panels), 1, [&](auto begin, auto end) {
        const Scratch panel = make_scratch(loop.tile_columns * rows);
        for (auto k = begin; k < end; ++k)
            loop.multiply(
                task, packed.get(), panel.get(), static_cast<std::size_t>(k) * loop.tile_columns);
    });
}

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
