// SPDX-License-Identifier: Apache-2.0
// Gradients of dense weights, leaf by leaf, without intermediate results in memory. Images become
// rows, so that convolutions can use the same product.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

namespace lockstep {

/// Rows of floats at a distance of `columns`.
struct RowMatrix {
    const float* values = nullptr;
    std::size_t columns = 0;
};

/// With more rows than this per leaf, the library's products are as fast.
inline constexpr std::size_t most_product_rows = 64;

/// For each leaf, of rows [leaf_ends[l - 1], leaf_ends[l]), computes S[i][j] = the sum over its
/// rows k of left[k][i] * right[k][j], as fused multiply-adds in the order of k. Leaves are added
/// as the two topmost of a stack, merges_after[l] times after leaf l. The final stack goes to
/// `outputs`, each left.columns x right.columns. Neither instruction set nor threads change a bit.
void leaf_product(const RowMatrix& left,
                  const RowMatrix& right,
                  std::span<const std::size_t> leaf_ends,
                  std::span<const int> merges_after,
                  std::span<float* const> outputs);

/// One dimension of a convolution.
struct SlideRule {
    std::int64_t kernel = 1, stride = 1, padding = 0, dilation = 1;
    std::int64_t places = 1;  ///< positions in the output
};

/// Turns f32 [n, C, H, W] into [n * rows.places * columns.places, C * rows.kernel *
/// columns.kernel]: a row for each position of the output, in the order of a weight's elements;
/// zero beyond the edges.
at::Tensor image_columns(const at::Tensor& images, const SlideRule& rows, const SlideRule& columns);

}  // namespace lockstep
