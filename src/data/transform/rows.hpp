// SPDX-License-Identifier: Apache-2.0
// Rows of pixels at once: the arithmetic of pixel.hpp, compiled for several instruction sets.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep {

/// The source of row y of a rotated image, as places in planes of `stride` values a row that begin
/// at (-1, -1).
struct RotatedRow {
    int height, width, y, stride;
    float cosine, sine;
    int* places;  ///< [width]
    float *share_y, *share_x;
};

/// Kernels for rows. They have plain pointers: an inline function of the standard library that is
/// compiled here for AVX2 could become the linker's only copy. Ranges do not overlap.
struct RowKernels {
    std::string_view name;
    void (*normalise_bytes)(const std::uint8_t* in, float* out, int count, float mean, float scale);
    void (*normalise_floats)(const float* in, float* out, int count, float mean, float scale);
    void (*to_floats)(const std::uint8_t* in, float* out, int count);
    void (*reverse_bytes)(const std::uint8_t* in, std::uint8_t* out, int count);
    void (*reverse_floats)(const float* in, float* out, int count);
    /// Sets out[3 i + c] = rows[c][i].
    void (*interleave_3)(const float* const* rows, float* out, int count);
    /// Stretches a row: blends of in[first[i]] and in[second[i]].
    void (*stretch)(const float* in,
                    const int* first,
                    const int* second,
                    const float* share,
                    float* out,
                    int count);
    void (*blend_rows)(const float* a, const float* b, float share, float* out, int count);
    /// `in` has `radius` more values on both sides.
    void (*blur_row)(const float* in, const float* weights, int radius, float* out, int count);
    /// rows[radius] is the centre.
    void (*blur_column)(
        const float* const* rows, const float* weights, int radius, float* out, int count);
    void (*rotate_row)(const RotatedRow& row);
    /// Blends the four neighbours at these places of a plane.
    void (*sample)(const float* plane,
                   int stride,
                   const int* places,
                   const float* share_y,
                   const float* share_x,
                   float* out,
                   int count);
};

namespace baseline {
extern const RowKernels row_kernels;
}
namespace avx2 {
extern const RowKernels row_kernels;
}

/// Returns the kernels that this processor can run, the fastest last. All give the same bits.
std::span<const RowKernels* const> row_kernels();

}  // namespace lockstep
