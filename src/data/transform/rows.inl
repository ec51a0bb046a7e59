// SPDX-License-Identifier: Apache-2.0
// Included by rows_*.cpp, each compiled for one instruction set. All but the table has internal
// linkage, also the copy of pixel.hpp's functions: they are put into this namespace.

#include "rows.hpp"


// pixel.hpp in a namespace of this instruction set: the linker must not take one copy for all.
#define pixel LOCKSTEP_ROWS_PIXEL(LOCKSTEP_ROWS)
#define LOCKSTEP_ROWS_PIXEL(set) LOCKSTEP_ROWS_PASTE(pixel_, set)
#define LOCKSTEP_ROWS_PASTE(a, b) a##b
#include "pixel.hpp"

namespace lockstep::LOCKSTEP_ROWS {
namespace {

void normalise_bytes(
    const std::uint8_t* in, float* __restrict out, int count, float mean, float scale) {
    for (int i = 0; i < count; ++i)
        out[i] = pixel::normalised(static_cast<float>(in[i]), mean, scale);
}

void normalise_floats(const float* in, float* __restrict out, int count, float mean, float scale) {
    for (int i = 0; i < count; ++i) out[i] = pixel::normalised(in[i], mean, scale);
}

void to_floats(const std::uint8_t* in, float* __restrict out, int count) {
    for (int i = 0; i < count; ++i) out[i] = static_cast<float>(in[i]);
}

void reverse_bytes(const std::uint8_t* in, std::uint8_t* __restrict out, int count) {
    for (int i = 0; i < count; ++i) out[i] = in[count - 1 - i];
}

void reverse_floats(const float* in, float* __restrict out, int count) {
    for (int i = 0; i < count; ++i) out[i] = in[count - 1 - i];
}

void interleave_3(const float* const* rows, float* __restrict out, int count) {
    const float *first = rows[0], *second = rows[1], *third = rows[2];
    for (int i = 0; i < count; ++i) {
        out[3 * i] = first[i];
        out[3 * i + 1] = second[i];
        out[3 * i + 2] = third[i];
    }
}

void stretch(const float* in,
             const int* first,
             const int* second,
             const float* share,
             float* __restrict out,
             int count) {
    for (int i = 0; i < count; ++i) out[i] = pixel::blend(in[first[i]], in[second[i]], share[i]);
}

void blend_rows(const float* a, const float* b, float share, float* __restrict out, int count) {
    for (int i = 0; i < count; ++i) out[i] = pixel::blend(a[i], b[i], share);
}

void blur_row(const float* in, const float* weights, int radius, float* __restrict out, int count) {
    for (int i = 0; i < count; ++i) out[i] = in[i];
    for (int k = 1; k <= radius; ++k)
        for (int i = 0; i < count; ++i)
            out[i] += pixel::pulled(in[i], in[i - k], in[i + k], weights[k - 1]);
}

void blur_column(
    const float* const* rows, const float* weights, int radius, float* __restrict out, int count) {
    const float* centre = rows[radius];
    for (int i = 0; i < count; ++i) out[i] = centre[i];
    for (int k = 1; k <= radius; ++k) {
        const float *above = rows[radius - k], *below = rows[radius + k];
        for (int i = 0; i < count; ++i)
            out[i] += pixel::pulled(centre[i], above[i], below[i], weights[k - 1]);
    }
}

void rotate_row(const RotatedRow& row) {
    int* __restrict places = row.places;
    float* __restrict share_y = row.share_y;
    float* __restrict share_x = row.share_x;
    const RotatedRow from = row;
    for (int x = 0; x < from.width; ++x) {
        const pixel::Source source =
            pixel::rotated_source(from.height, from.width, from.cosine, from.sine, from.y, x);
        places[x] = (source.y + 1) * from.stride + source.x + 1;
        share_y[x] = source.share_y;
        share_x[x] = source.share_x;
    }
}

void sample(const float* plane,
            int stride,
            const int* places,
            const float* share_y,
            const float* share_x,
            float* __restrict out,
            int count) {
    for (int i = 0; i < count; ++i) {
        const float* at = plane + places[i];
        const float* under = at + stride;
        const float top = pixel::blend(at[0], at[1], share_x[i]);
        const float bottom = pixel::blend(under[0], under[1], share_x[i]);
        out[i] = pixel::blend(top, bottom, share_y[i]);
    }
}

}  // namespace

#define LOCKSTEP_ROWS_NAME(set) LOCKSTEP_ROWS_TEXT(set)
#define LOCKSTEP_ROWS_TEXT(set) #set
const RowKernels row_kernels = {LOCKSTEP_ROWS_NAME(LOCKSTEP_ROWS),
                                normalise_bytes,
                                normalise_floats,
                                to_floats,
                                reverse_bytes,
                                reverse_floats,
                                interleave_3,
                                stretch,
                                blend_rows,
                                blur_row,
                                blur_column,
                                rotate_row,
                                sample};

}  // namespace lockstep::LOCKSTEP_ROWS
