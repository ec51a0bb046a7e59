// SPDX-License-Identifier: Apache-2.0
/// @file
/// A batch's transforms as plain data, which the CPU executes or a GPU receives.
#pragma once

#include <cstdint>

namespace lockstep {

/// The layout of values in memory: [n, C, H, W] or, channels innermost, [n, H, W, C].
enum class PixelLayout : std::int32_t { nchw, nhwc };

/// The operation of a stage on each image.
enum class StageKind : std::int32_t { window, resize, rotate, blur };

/// Largest radius of a blur: StageDraw has room for so many weights.
inline constexpr int most_blur_radius = 7;

/// One pass over all images: u8 or f32 planes in, f32 planes out. Crops, flips and cutout of a row
/// are one window.
struct TransformStage {
    StageKind kind = StageKind::window;
    std::int32_t channels = 0, in_height = 0, in_width = 0, out_height = 0, out_width = 0;
    std::int32_t radius = 0;  ///< radius of a blur
};

/// Random choices of one image for one stage. Only the members of the stage's kind are used.
struct StageDraw {
    /// Window: output (y, x) is input (y_begin + y, x_begin + x_step * x) for y in [y_low, y_high)
    /// and x in [x_low, x_high), and 0 elsewhere; for y in [cut_top, cut_bottom) and x in
    /// [cut_left, cut_right) it is the mean.
    std::int32_t x_begin, x_step, x_low, x_high, y_begin, y_low, y_high;
    std::int32_t cut_left, cut_right, cut_top, cut_bottom;
    float cosine, sine;               ///< angle of a rotation
    float weights[most_blur_radius];  ///< blur: weights of the neighbours at distance 1, 2 ...
};

/// A stage over a batch; pointers are in the memory of the executing device.
struct StageLaunch {
    TransformStage stage;
    const std::uint8_t* bytes = nullptr;  ///< input [n, C, H, W] of the first stage
    const float* floats = nullptr;        ///< input of a later stage, or of images of numbers
    float* out = nullptr;
    const StageDraw* draws =
        nullptr;  ///< choices for the first image; the next is draw_stride further
    std::int32_t draw_stride = 0;
    std::int32_t is_last = 0;     ///< 1: normalise, and write in `layout`; 0: [n, C, H, W]
    const float* mean = nullptr;  ///< f32 [C], in units of u8
    const float* scale = nullptr;
    PixelLayout layout = PixelLayout::nchw;
    std::int64_t images = 0;
};

/// The mix of one row. Without a box (top == bottom): x + (1 - lambda) * (partner - x); with one,
/// the partner's pixels inside it.
struct MixRow {
    std::uint32_t partner = 0;  ///< a row of the same leaf
    float lambda = 1;           ///< weight of the row's own label; the partner's is 1 - lambda
    std::int32_t left = 0, right = 0, top = 0, bottom = 0;
};

/// Mixing over a leaf: `in` and `out` must not overlap.
struct MixLaunch {
    const float* in = nullptr;
    float* out = nullptr;
    const MixRow* rows = nullptr;
    std::int32_t channels = 0, height = 0, width = 0;
    PixelLayout layout = PixelLayout::nchw;
    std::int64_t images = 0;
};

/// Name of the C entry point in liblockstep_cuda.so. It enqueues on a cudaStream_t, whose device is
/// current, and returns a cudaError_t.
inline constexpr const char* transform_entry_point = "lockstep_cuda_transform";

/// Name of the entry point for mixing, with the same rules.
inline constexpr const char* mix_entry_point = "lockstep_cuda_mix";

/// The type of that entry point. `stages` is read before it returns; its pointers are in GPU
/// memory.
using TransformEntryPoint = int (*)(const StageLaunch* stages, int count, void* stream);

/// The type of the entry point for mixing, for one launch.
using MixEntryPoint = int (*)(const MixLaunch* launch, void* stream);

}  // namespace lockstep
