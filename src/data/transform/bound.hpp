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
