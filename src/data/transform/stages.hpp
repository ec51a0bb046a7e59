// SPDX-License-Identifier: Apache-2.0
// Steps of a pipeline folded into stages: neighbouring steps that one pass can do.
#pragma once

#include "lockstep/data/transform.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// One step, its stage, and its input shape.
struct PlacedOp {
    TransformOp op;
    std::uint64_t position = 0;  ///< place in the pipeline: part of its random key
    std::size_t stage = 0;
    ImageShape before;
};

struct StagePlan {
    std::vector<TransformStage> stages;
    std::vector<PlacedOp> ops;  ///< without normalise, mixup and cutmix
};

/// Returns the shape of `input` after `op`. Errors: E248.
ImageShape shape_after(const TransformOp& op, const ImageShape& input);

/// Returns at least one stage. Errors: E248.
StagePlan plan_stages(const TransformPipeline& pipeline, const ImageShape& input);

inline constexpr int most_side = 8192;  ///< largest side of an image or a crop

/// Returns "crop 32 pad 4", with every default written out.
std::string text_of(const TransformOp& op);

/// Writes the draws of image `id`, one for each stage of `plan`.
void draw_image(const StagePlan& plan,
                std::uint64_t id,
                TransformKey key,
                std::span<StageDraw> draws);

}  // namespace lockstep
