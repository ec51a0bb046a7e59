// SPDX-License-Identifier: Apache-2.0
// What images draw: from (seed, epoch, sample, step) to the numbers of each stage.
#pragma once

#include "transform/stages.hpp"

#include <span>

namespace lockstep {

/// Writes the draws of image `id`, one for each stage of `plan`.
void draw_image(const StagePlan& plan,
                std::uint64_t id,
                TransformKey key,
                std::span<StageDraw> draws);

}  // namespace lockstep
