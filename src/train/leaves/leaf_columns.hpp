// SPDX-License-Identifier: Apache-2.0
// Images as rows of what each place of a convolution's output sees.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace lockstep {

/// Of one dimension of a convolution.
struct SlideRule {
    std::int64_t kernel = 1, stride = 1, padding = 0, dilation = 1;
    std::int64_t places = 1;  ///< of the output
};

/// f32 [n, C, H, W] -> [n * rows.places * columns.places, C * rows.kernel * columns.kernel]: a row
/// for each place of the output, in the order of a weight's elements; zero beyond the edges.
at::Tensor image_columns(const at::Tensor& images, const SlideRule& rows, const SlideRule& columns);

}  // namespace lockstep
