// SPDX-License-Identifier: Apache-2.0
#include "transform/stages.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/random.hpp"

#include "transform/exact_math.hpp"
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

StageDraw whole_window(const TransformStage& stage) {
    StageDraw draw{};
    draw.x_step = 1;
    draw.x_high = stage.in_width;
    draw.y_high = stage.in_height;
    return draw;
}

/// The window's output (y, x) becomes its former (y + top, x + left), cut to the op's size.
void shift(StageDraw& draw, const TransformOp& op, int top, int left) {
    draw.x_begin += draw.x_step * left;
    draw.x_low = std::clamp(draw.x_low - left, 0, op.width);
    draw.x_high = std::clamp(draw.x_high - left, draw.x_low, op.width);
    draw.y_begin += top;
    draw.y_low = std::clamp(draw.y_low - top, 0, op.height);
    draw.y_high = std::clamp(draw.y_high - top, draw.y_low, op.height);
}

void mirror(StageDraw& draw, int width) {
    draw.x_begin += draw.x_step * (width - 1);
    draw.x_step = -draw.x_step;
    const int low = draw.x_low;
    draw.x_low = width - draw.x_high;
    draw.x_high = width - low;
}

int below(CounterRandom& random, int n) {
    return static_cast<int>(random.below(static_cast<std::uint64_t>(n)));
}

void cut_out(StageDraw& draw, const PlacedOp& placed, CounterRandom random) {
    const int size = placed.op.size;
    const int top = below(random, placed.before.height) - size / 2;
    const int left = below(random, placed.before.width) - size / 2;
    draw.cut_top = std::max(top, 0);
    draw.cut_bottom = std::min(top + size, placed.before.height);
    draw.cut_left = std::max(left, 0);
    draw.cut_right = std::min(left + size, placed.before.width);
}

void draw_crop(StageDraw& draw, const PlacedOp& placed, CounterRandom random) {
    const TransformOp& op = placed.op;
    const int top = below(random, placed.before.height + 2 * op.size - op.height + 1);
    const int left = below(random, placed.before.width + 2 * op.size - op.width + 1);
    shift(draw, op, top - op.size, left - op.size);
}

void draw_rotation(StageDraw& draw, const TransformOp& op, CounterRandom random) {
    const CosineSine turn = cosine_sine((2 * random.uniform() - 1) * op.high);
    draw.cosine = static_cast<float>(turn.cosine);
    draw.sine = static_cast<float>(turn.sine);
}

void draw_blur(StageDraw& draw, const TransformOp& op, CounterRandom random) {
    const double sigma = op.low + (op.high - op.low) * random.uniform();
    double weights[most_blur_radius] = {}, sum = 1;
    for (int i = 1; i <= op.size / 2; ++i) {
        weights[i - 1] = exponential(-i * i / (2 * sigma * sigma));
        sum += 2 * weights[i - 1];
    }
    for (int i = 0; i < op.size / 2; ++i) draw.weights[i] = static_cast<float>(weights[i] / sum);
}

void draw_op(StageDraw& draw, const PlacedOp& placed, CounterRandom random) {
    const TransformOp& op = placed.op;
    switch (op.kind) {
        case TransformKind::crop:
            return draw_crop(draw, placed, random);
        case TransformKind::centre_crop:
            return shift(draw,
                         op,
                         (placed.before.height - op.height) / 2,
                         (placed.before.width - op.width) / 2);
        case TransformKind::flip:
            if (random.uniform() < op.high) mirror(draw, placed.before.width);
            return;
        case TransformKind::cutout:
            return cut_out(draw, placed, random);
        case TransformKind::rotate:
            return draw_rotation(draw, op, random);
        case TransformKind::blur:
            return draw_blur(draw, op, random);
        default:
            return;
    }
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

void draw_image(const StagePlan& plan,
                std::uint64_t id,
                TransformKey key,
                std::span<StageDraw> draws) {
    for (std::size_t i = 0; i < plan.stages.size(); ++i) draws[i] = whole_window(plan.stages[i]);
    for (const PlacedOp& placed : plan.ops)
        draw_op(draws[placed.stage],
                placed,
                CounterRandom(Purpose::augmentation, {key.seed, key.epoch, id, placed.position}));
}

}  // namespace lockstep
