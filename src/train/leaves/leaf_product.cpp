// SPDX-License-Identifier: Apache-2.0
#include "leaves/leaf_product.hpp"

#include "lockstep/core/error.hpp"

#include "leaves/product_loops.hpp"

#include <array>
#include <cstdlib>
#include <memory>
#include <new>

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

}  // namespace lockstep
