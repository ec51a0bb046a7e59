// SPDX-License-Identifier: Apache-2.0
// A pipeline bound to a shape, for ImageTransform.
#pragma once

#include "lockstep/data/transform.hpp"

#include "rows.hpp"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace lockstep {

/// One step, the stage that does it, and the shape that it finds.
struct PlacedOp {
    TransformOp op;
    std::uint64_t position = 0;  ///< in the pipeline: part of its random key
    std::size_t stage = 0;
    ImageShape before;
};

struct StagePlan {
    std::vector<TransformStage> stages;
    std::vector<PlacedOp> ops;  ///< without normalise, mixup and cutmix
};

/// `input` after `op`. Errors: E248.
ImageShape shape_after(const TransformOp& op, const ImageShape& input);

/// At least one stage. Errors: E248.
StagePlan plan_stages(const TransformPipeline& pipeline, const ImageShape& input);

inline constexpr int most_side = 8192;  ///< of an image or a crop

/// "crop 32 pad 4", every default written out.
std::string text_of(const TransformOp& op);

/// Writes the draws of image `id`, one for each stage of `plan`.
void draw_image(const StagePlan& plan,
                std::uint64_t id,
                TransformKey key,
                std::span<StageDraw> draws);

/// The columns of a resize, which are the same for every row.
struct StretchTaps {
    std::vector<int> first, second;
    std::vector<float> share;
};

struct BoundTransform {
    BoundTransform(const TransformPipeline& pipeline,
                   const ImageShape& input,
                   std::span<const double> mean,
                   std::span<const double> std,
                   double unit);

    std::vector<TransformOp> ops;
    ImageShape input, output;
    StagePlan plan;
    std::vector<float> mean, scale;
    std::vector<StretchTaps> taps;  ///< by stage; empty except for resizes
    const RowKernels* rows;

    /// Returns the largest plane between two stages, all channels.
    std::size_t largest_image() const;
};

/// Does the same as apply(), one image after the other on this thread, with these row kernels. `T`
/// is std::uint8_t or float.
template <class T>
void transform_rows(const BoundTransform& bound,
                    const RowKernels& kernels,
                    std::span<const T> images,
                    std::span<const std::uint64_t> ids,
                    TransformKey key,
                    PixelLayout layout,
                    std::span<float> out);

/// Values of one channel that `stage` is given.
inline std::size_t in_values(const TransformStage& stage) {
    return static_cast<std::size_t>(stage.in_height) * static_cast<std::size_t>(stage.in_width);
}

class ImageRunner {
  public:
    ImageRunner(const BoundTransform& bound, const RowKernels& kernels, PixelLayout layout);

    /// `image` u8 or f32 [C, H, W], `out` f32 of one output image in the layout.
    template <class T>
    void run(const T* image, std::span<const StageDraw> draws, float* out);

  private:
    /// A single window of bytes: cut, mirrored, normalised and laid out some rows at a time.
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
    /// Normalised rows of all channels, which lie one after the other, to their place.
    void interleave(const float* rows, int pixels, float* out) const;
    std::span<float> room(std::size_t values);

    const BoundTransform& bound_;
    const RowKernels& kernels_;
    PixelLayout layout_;
    std::vector<float> planes_, other_planes_, room_;
    std::vector<std::uint8_t> bytes_, reversed_;
    std::vector<int> places_;
};

/// Calls work(begin, end) for parts that cover [0, count) once, on `threads` threads; the caller's
/// is one of them. Throws what the first part that failed threw, after all have ended.
template <class Work>
void share_out(std::size_t count, int threads, Work&& work) {
    const std::size_t parts =
        std::clamp<std::size_t>(static_cast<std::size_t>(std::max(threads, 1)), 1, count | 1);
    std::vector<std::exception_ptr> failures(parts);
    const auto run = [&](std::size_t part) {
        try {
            work(count * part / parts, count * (part + 1) / parts);
        } catch (...) {
            failures[part] = std::current_exception();
        }
    };
    {
        std::vector<std::jthread> others;
        for (std::size_t part = 1; part < parts; ++part) others.emplace_back(run, part);
        run(0);
    }
    for (const std::exception_ptr& failure : failures)
        if (failure) std::rethrow_exception(failure);
}

struct CosineSine {
    double cosine, sine;
};

/// Of an angle in degrees, |degrees| <= 360; exact at 0.
CosineSine cosine_sine(double degrees);

/// e^x for x <= 0; 0 below -700.
double exponential(double x);

/// The natural logarithm of a normal x > 0.
double logarithm(double x);

}  // namespace lockstep
