// SPDX-License-Identifier: Apache-2.0
#include "transform/stages.hpp"

#include "lockstep/core/error.hpp"

#include "transform/text.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {
namespace {

Error does_not_fit(const TransformOp& op, const ImageShape& input, const std::string& why) {
    return Error("E248",
                 fmt::format("the transform '{}' does not fit images of {} x {} x {} (channels, "
                             "height, width)",
                             text_of(op),
                             input.channels,
                             input.height,
                             input.width),
                 why,
                 "change its numbers, or put a 'resize' before it");
}

ImageShape resized(const TransformOp& op, const ImageShape& input) {
    if (op.width > 0) return {input.channels, op.height, op.width};
    const auto longer = [&](int long_side, int short_side) {
        return static_cast<int>(std::int64_t{op.height} * long_side / short_side);
    };
    if (input.width <= input.height)
        return {input.channels, longer(input.height, input.width), op.height};
    return {input.channels, op.height, longer(input.width, input.height)};
}

ImageShape cropped(const TransformOp& op, const ImageShape& input) {
    const int height = input.height + 2 * op.size, width = input.width + 2 * op.size;
    check(op.height <= height && op.width <= width, [&] {
        return does_not_fit(
            op,
            input,
            fmt::format("{} x {} cannot be cut from {} x {}", op.height, op.width, height, width));
    });
    return {input.channels, op.height, op.width};
}

bool is_window(TransformKind kind) {
    using enum TransformKind;
    return kind == crop || kind == centre_crop || kind == flip || kind == cutout;
}

StageKind stage_kind(TransformKind kind) {
    if (kind == TransformKind::resize) return StageKind::resize;
    if (kind == TransformKind::rotate) return StageKind::rotate;
    return kind == TransformKind::blur ? StageKind::blur : StageKind::window;
}

TransformStage new_stage(const TransformOp& op, const ImageShape& input) {
    TransformStage stage;
    stage.kind = stage_kind(op.kind);
    stage.channels = input.channels;
    stage.in_height = input.height;
    stage.in_width = input.width;
    stage.radius = op.kind == TransformKind::blur ? op.size / 2 : 0;
    return stage;
}

/// Whether the last stage can take the step too: a window that has not cut anything out yet.
bool can_join(const StagePlan& plan, TransformKind kind) {
    return is_window(kind) && !plan.ops.empty() && is_window(plan.ops.back().op.kind) &&
           plan.ops.back().op.kind != TransformKind::cutout;
}

}  // namespace

ImageShape shape_after(const TransformOp& op, const ImageShape& input) {
    switch (op.kind) {
        case TransformKind::resize: {
            const ImageShape shape = resized(op, input);
            check(std::max(shape.height, shape.width) <= most_side, [&] {
                return does_not_fit(op, input, fmt::format("a side would exceed {}", most_side));
            });
            return shape;
        }
        case TransformKind::crop:
        case TransformKind::centre_crop:
            return cropped(op, input);
        case TransformKind::blur:
            check(op.size / 2 < std::min(input.height, input.width),
                  [&] { return does_not_fit(op, input, "its taps reach across the image"); });
            return input;
        case TransformKind::normalise:
            check(op.statistics == Statistics::data_set || input.channels == 3, [&] {
                return does_not_fit(op, input, "ImageNet's statistics are of three channels");
            });
            return input;
        default:
            return input;
    }
}

StagePlan plan_stages(const TransformPipeline& pipeline, const ImageShape& input) {
    StagePlan plan;
    ImageShape shape = input;
    for (std::size_t i = 0; i < pipeline.ops().size(); ++i) {
        const TransformOp& op = pipeline.ops()[i];
        const ImageShape after = shape_after(op, shape);
        if (op.kind < TransformKind::normalise) {
            if (!can_join(plan, op.kind)) plan.stages.push_back(new_stage(op, shape));
            plan.stages.back().out_height = after.height;
            plan.stages.back().out_width = after.width;
            plan.ops.push_back({op, i, plan.stages.size() - 1, shape});
        }
        shape = after;
    }
    if (plan.stages.empty()) {
        plan.stages.push_back(new_stage(TransformOp{}, input));
        plan.stages.back().out_height = input.height;
        plan.stages.back().out_width = input.width;
    }
    return plan;
}

}  // namespace lockstep
