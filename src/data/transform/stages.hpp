// SPDX-License-Identifier: Apache-2.0
// Steps of a pipeline folded into stages: what neighbours in the list can do in one pass.
#pragma once

#include "lockstep/data/transform.hpp"

#include <cstddef>
#include <span>
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

/// What images draw, from (seed, epoch, sample, step) to the numbers of each stage: writes the
/// draws of image `id`, one for each stage of `plan`.
void draw_image(const StagePlan& plan,
                std::uint64_t id,
                TransformKey key,
                std::span<StageDraw> draws);

}  // namespace lockstep
