// SPDX-License-Identifier: Apache-2.0
// The same loop compiled for several instruction sets.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace lockstep {

/// The arguments of leaf_product(), see there. They are plain pointers: an inline function of the
/// standard library that is compiled here for AVX-512 could become the linker's only copy.
struct ProductTask {
    const float* left;  ///< row k begins at left + k * left_stride
    std::size_t left_stride, left_columns;
    const float* right;
    std::size_t right_stride, right_columns;
    const std::size_t* leaf_ends;  ///< by leaf: one past its last row; the first begins at row 0
    const int* merges_after;       ///< by leaf
    std::size_t leaves;
    float* const* outputs;  ///< left_columns x right_columns each
    std::size_t output_count;
};

/// Upper bound of the merges that can be pending at once.
inline constexpr int deepest_product = 32;

struct ProductLoop {
    std::string_view instruction_set;
    std::size_t tile_rows;     ///< rows of an output that are computed at once
    std::size_t tile_columns;  ///< columns of an output that are computed at once

    /// Copies the left operand by tiles: rows * left_columns floats, rounded up to a tile.
    void (*pack_left)(const ProductTask& task, float* packed);

    /// Computes columns [begin, begin + tile_columns) of all outputs, or as many as there are.
    /// `packed`: the left operand; `panel`: room for rows * tile_columns floats. Both are 64-byte
    /// aligned.
    void (*multiply)(const ProductTask& task, const float* packed, float* panel, std::size_t begin);
};

namespace baseline {
extern const ProductLoop product_loop;
}
namespace avx2 {
extern const ProductLoop product_loop;
}
namespace avx512 {
extern const ProductLoop product_loop;
}

/// Returns the loops that this processor can run, the fastest last.
std::span<const ProductLoop* const> product_loops();

}  // namespace lockstep
