// SPDX-License-Identifier: Apache-2.0
// A pipeline bound to a shape, for ImageTransform.
#pragma once

#include "lockstep/data/transform.hpp"

#include "transform/rows.hpp"
#include "transform/stages.hpp"

#include <vector>

namespace lockstep {

/// The columns of a resize, which are the same for every row.
struct StretchTaps {
    std::vector<int> first, second;
    std::vector<float> share;
};

struct BoundTransform {
    BoundTransform(const TransformPipeline& pipeline,
                   const ImageShape& input,
                   std::span<const double> mean,
                   std::span<const double> std);

    std::vector<TransformOp> ops;
    ImageShape input, output;
    StagePlan plan;
    std::vector<float> mean, scale;
    std::vector<StretchTaps> taps;  ///< by stage; empty except for resizes
    const RowKernels* rows;

    /// Returns the largest plane between two stages, all channels.
    std::size_t largest_image() const;
};

/// Does the same as apply(), one image after the other on this thread, with these row kernels.
void transform_rows(const BoundTransform& bound,
                    const RowKernels& kernels,
                    std::span<const std::uint8_t> images,
                    std::span<const std::uint64_t> ids,
                    TransformKey key,
                    PixelLayout layout,
                    std::span<float> out);

}  // namespace lockstep
