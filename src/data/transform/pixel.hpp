// SPDX-License-Identifier: Apache-2.0
// The value of every transformed pixel, one source for CPU and GPU. float operations are in this
// order and not contracted (-ffp-contract=off, nvcc --fmad=false), so that both give the same bits.
#pragma once

#include "lockstep/core/host_device.hpp"
#include "lockstep/data/transform_launch.hpp"

#include <cstddef>

namespace lockstep::pixel {

/// One channel of an image.
template <class T>
struct Plane {
    const T* values;
    int height, width;

    LOCKSTEP_HOST_DEVICE float at(int y, int x) const {
        return static_cast<float>(
            values[static_cast<std::size_t>(y) * static_cast<std::size_t>(width) +
                   static_cast<std::size_t>(x)]);
    }
    LOCKSTEP_HOST_DEVICE float at_or_zero(int y, int x) const {
        return y >= 0 && y < height && x >= 0 && x < width ? at(y, x) : 0.0f;
    }
};

LOCKSTEP_HOST_DEVICE inline float normalised(float value, float mean, float scale) {
    return (value - mean) / scale;
}

/// Blends a and b; exactly a at share 0.
LOCKSTEP_HOST_DEVICE inline float blend(float a, float b, float share) {
    return a + share * (b - a);
}

LOCKSTEP_HOST_DEVICE inline float clamped(float value, float low, float high) {
    return value < low ? low : value > high ? high : value;
}

LOCKSTEP_HOST_DEVICE inline int floor_of(float value) {
    const int truncated = static_cast<int>(value);
    return truncated - (value < static_cast<float>(truncated) ? 1 : 0);
}

/// The two inputs of one output of a bilinear resize, pixel centres at halves.
struct Tap {
    int first, second;
    float share;
};

LOCKSTEP_HOST_DEVICE inline Tap resize_tap(int at, int in, int out) {
    const float scale = static_cast<float>(in) / static_cast<float>(out);
    const float last = static_cast<float>(in - 1);
    const float position = clamped((static_cast<float>(at) + 0.5f) * scale - 0.5f, 0.0f, last);
    const int first = static_cast<int>(position);
    return {first, first + 1 < in ? first + 1 : first, position - static_cast<float>(first)};
}

/// The source of a rotated image's pixel: between columns x, x + 1 and rows y, y + 1, of which
/// those outside of the image are 0.
struct Source {
    int y, x;
    float share_y, share_x;
};

LOCKSTEP_HOST_DEVICE inline Source rotated_source(
    int height, int width, float cosine, float sine, int y, int x) {
    const float centre_y = 0.5f * static_cast<float>(height - 1);
    const float centre_x = 0.5f * static_cast<float>(width - 1);
    const float dy = static_cast<float>(y) - centre_y, dx = static_cast<float>(x) - centre_x;
    const float from_x =
        clamped(cosine * dx - sine * dy + centre_x, -1.0f, static_cast<float>(width));
    const float from_y =
        clamped(sine * dx + cosine * dy + centre_y, -1.0f, static_cast<float>(height));
    const int left = floor_of(from_x), top = floor_of(from_y);
    return {top, left, from_y - static_cast<float>(top), from_x - static_cast<float>(left)};
}

/// Mirrors at the borders, which are not repeated: -1 is 1. |outside| < size.
LOCKSTEP_HOST_DEVICE inline int reflected(int at, int size) {
    if (at < 0) return -at;
    return at < size ? at : 2 * (size - 1) - at;
}

/// Neighbours pull the centre to themselves: an even surface stays exactly the same.
LOCKSTEP_HOST_DEVICE inline float pulled(float centre, float a, float b, float weight) {
    return weight * ((a - centre) + (b - centre));
}

template <class T>
LOCKSTEP_HOST_DEVICE float window_value(
    Plane<T> in, const StageDraw& draw, int y, int x, float mean) {
    if (y >= draw.cut_top && y < draw.cut_bottom && x >= draw.cut_left && x < draw.cut_right)
        return mean;
    if (y < draw.y_low || y >= draw.y_high || x < draw.x_low || x >= draw.x_high) return 0.0f;
    return in.at(draw.y_begin + y, draw.x_begin + draw.x_step * x);
}

template <class T>
LOCKSTEP_HOST_DEVICE float resized_value(Plane<T> in, int out_height, int out_width, int y, int x) {
    const Tap column = resize_tap(x, in.width, out_width);
    const Tap row = resize_tap(y, in.height, out_height);
    const float top =
        blend(in.at(row.first, column.first), in.at(row.first, column.second), column.share);
    const float bottom =
        blend(in.at(row.second, column.first), in.at(row.second, column.second), column.share);
    return blend(top, bottom, row.share);
}

template <class T>
LOCKSTEP_HOST_DEVICE float rotated_value(Plane<T> in, const StageDraw& draw, int y, int x) {
    const Source from = rotated_source(in.height, in.width, draw.cosine, draw.sine, y, x);
    const float top =
        blend(in.at_or_zero(from.y, from.x), in.at_or_zero(from.y, from.x + 1), from.share_x);
    const float bottom = blend(
        in.at_or_zero(from.y + 1, from.x), in.at_or_zero(from.y + 1, from.x + 1), from.share_x);
    return blend(top, bottom, from.share_y);
}

template <class T>
LOCKSTEP_HOST_DEVICE float row_blurred_value(
    Plane<T> in, const StageDraw& draw, int radius, int y, int x) {
    const float centre = in.at(y, x);
    float value = centre;
    for (int i = 1; i <= radius; ++i)
        value += pulled(centre,
                        in.at(y, reflected(x - i, in.width)),
                        in.at(y, reflected(x + i, in.width)),
                        draw.weights[i - 1]);
    return value;
}

template <class T>
LOCKSTEP_HOST_DEVICE float blurred_value(
    Plane<T> in, const StageDraw& draw, int radius, int y, int x) {
    const float centre = row_blurred_value(in, draw, radius, y, x);
    float value = centre;
    for (int i = 1; i <= radius; ++i)
        value += pulled(centre,
                        row_blurred_value(in, draw, radius, reflected(y - i, in.height), x),
                        row_blurred_value(in, draw, radius, reflected(y + i, in.height), x),
                        draw.weights[i - 1]);
    return value;
}

/// Returns any stage's output (y, x) of one channel, before normalising.
template <class T>
LOCKSTEP_HOST_DEVICE float stage_value(
    const TransformStage& stage, Plane<T> in, const StageDraw& draw, int y, int x, float mean) {
    switch (stage.kind) {
        case StageKind::window:
            return window_value(in, draw, y, x, mean);
        case StageKind::resize:
            return resized_value(in, stage.out_height, stage.out_width, y, x);
        case StageKind::rotate:
            return rotated_value(in, draw, y, x);
        case StageKind::blur:
            return blurred_value(in, draw, stage.radius, y, x);
    }
    return 0.0f;
}

/// Returns a pixel of a mixed image.
LOCKSTEP_HOST_DEVICE inline float mixed_value(
    const MixRow& row, float own, float partner, int y, int x) {
    if (row.top == row.bottom) return blend(own, partner, 1.0f - row.lambda);
    const bool is_inside = y >= row.top && y < row.bottom && x >= row.left && x < row.right;
    return is_inside ? partner : own;
}

}  // namespace lockstep::pixel
