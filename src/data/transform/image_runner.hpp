// SPDX-License-Identifier: Apache-2.0
// Runs images one after the other through the stages, on one thread, in reused buffers.
#pragma once

#include "transform/bound.hpp"

#include <vector>

namespace lockstep {

/// Returns the input values of `stage` in one channel.
inline std::size_t in_values(const TransformStage& stage) {
    return static_cast<std::size_t>(stage.in_height) * static_cast<std::size_t>(stage.in_width);
}

class ImageRunner {
  public:
    ImageRunner(const BoundTransform& bound, const RowKernels& kernels, PixelLayout layout);

    /// Runs one image: `image` u8 [C, H, W], `out` f32 of one output image in the layout.
    void run(const std::uint8_t* image, std::span<const StageDraw> draws, float* out);

  private:
    /// Computes a single window of bytes: cut, mirrored, normalised and laid out some rows at a
    /// time.
    void window_to_out(const std::uint8_t* image, const StageDraw& draw, float* out);
    const std::uint8_t* window_bytes(const std::uint8_t* plane,
                                     const StageDraw& draw,
                                     int first_row,
                                     int rows);
    void set_cut(const StageDraw& draw, float* out) const;

    template <class T>
    void stage(std::size_t index, const T* in, const StageDraw& draw, float* out);
    template <class T>
    void window(const TransformStage& stage, const T* in, const StageDraw& draw, float* out);
    template <class T>
    void resize(const TransformStage& stage, const StretchTaps& taps, const T* in, float* out);
    template <class T>
    void rotate(const TransformStage& stage, const T* in, const StageDraw& draw, float* out);
    template <class T>
    void blur(const TransformStage& stage, const T* in, const StageDraw& draw, float* out);

    const float* floats(const std::uint8_t* row, int count, float* room) const;
    const float* floats(const float* row, int, float*) const { return row; }

    void lay_out(const float* planes, float* out);
    /// Writes normalised rows of all channels, which are contiguous, to their place.
    void interleave(const float* rows, int pixels, float* out) const;
    std::span<float> room(std::size_t values);

    const BoundTransform& bound_;
    const RowKernels& kernels_;
    PixelLayout layout_;
    std::vector<float> planes_, other_planes_, room_;
    std::vector<std::uint8_t> bytes_, reversed_;
    std::vector<int> places_;
};

}  // namespace lockstep
