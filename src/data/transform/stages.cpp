// SPDX-License-Identifier: Apache-2.0

#include "lockstep/core/error.hpp"
#include "lockstep/data/transform.hpp"

#include "bound.hpp"

#include <algorithm>
#include <cmath>

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

bool is_window(TransformKind kind) {
    using enum TransformKind;
    return kind == crop || kind == centre_crop || kind == flip || kind == cutout;
}

StageKind stage_kind(TransformKind kind) {
    if (kind == TransformKind::resize) return StageKind::resize;
    if (kind == TransformKind::rotate) return StageKind::rotate;
    return kind == TransformKind::blur ? StageKind::blur : StageKind::window;
}

TransformStage new_stage(const TransformOp& op, const ImageShape& input, const ImageShape& output) {
    return {.kind = stage_kind(op.kind),
            .channels = input.channels,
            .in_height = input.height,
            .in_width = input.width,
            .out_height = output.height,
            .out_width = output.width,
            .radius = op.kind == TransformKind::blur ? op.size / 2 : 0};
}

/// Returns true if the last stage can take the step too: a window that has not cut anything out
/// yet.
bool can_join(const StagePlan& plan, TransformKind kind) {
    return is_window(kind) && !plan.ops.empty() && is_window(plan.ops.back().op.kind) &&
           plan.ops.back().op.kind != TransformKind::cutout;
}

using enum TransformKind;

// ln 2 in two parts: multiples of the first by small whole numbers are exact.
constexpr double ln2_high = 0x1.62e42fefa0000p-1, ln2_low = 0x1.cf79abc9e3b3ap-40;

}  // namespace

StagePlan plan_stages(const TransformPipeline& pipeline, const ImageShape& input) {
    StagePlan plan;
    ImageShape shape = input;
    for (std::size_t i = 0; i < pipeline.ops().size(); ++i) {
        const TransformOp& op = pipeline.ops()[i];
        const ImageShape after = shape_after(op, shape);
        if (op.kind < TransformKind::normalise) {
            if (!can_join(plan, op.kind)) plan.stages.push_back(new_stage(op, shape, after));
            plan.stages.back().out_height = after.height;
            plan.stages.back().out_width = after.width;
            plan.ops.push_back({op, i, plan.stages.size() - 1, shape});
        }
        shape = after;
    }
    if (plan.stages.empty()) plan.stages.push_back(new_stage(TransformOp{}, input, input));
    return plan;
}

TransformPipeline TransformPipeline::evaluation() const {
    TransformPipeline result;
    result.ops_.clear();
    for (TransformOp op : ops_) {
        if (op.kind == crop) op = {.kind = centre_crop, .height = op.height, .width = op.width};
        if (op.kind == resize || op.kind == centre_crop || op.kind == normalise)
            result.ops_.push_back(op);
    }
    return result;
}

ImageShape TransformPipeline::output_shape(const ImageShape& input) const {
    ImageShape shape = input;
    for (const TransformOp& op : ops_) shape = shape_after(op, shape);
    return shape;
}

bool TransformPipeline::mixes_labels() const {
    return ops_.back().kind == mixup || ops_.back().kind == cutmix;
}

bool TransformPipeline::moves_pixels() const {
    return std::ranges::any_of(ops_, [](const TransformOp& op) { return op.kind <= rotate; });
}

CosineSine cosine_sine(double degrees) {
    // Taylor's series of an eighth of the angle (less than 0.8), then doubled three times.
    const double x = degrees * (3.14159265358979323846 / 180 / 8), square = x * x;
    double cosine = 1, sine = 1;
    for (int i = 18; i >= 2; i -= 2) {
        cosine = 1 - square / (i * (i - 1)) * cosine;
        sine = 1 - square / (i * (i + 1)) * sine;
    }
    sine *= x;
    for (int doubling = 0; doubling < 3; ++doubling) {
        const double twice = 2 * sine * cosine;
        cosine = 1 - 2 * sine * sine;
        sine = twice;
    }
    return {cosine, sine};
}

double exponential(double x) {
    if (x < -700) return 0;
    const int powers = static_cast<int>(x * 1.4426950408889634 - 0.5);
    const double rest = (x - powers * ln2_high) - powers * ln2_low;
    double sum = 1;
    for (int i = 16; i >= 1; --i) sum = 1 + rest / i * sum;
    return std::ldexp(sum, powers);
}

double logarithm(double x) {
    int power = 0;
    double mantissa = std::frexp(x, &power);
    if (mantissa < 0.70710678118654752) {
        mantissa *= 2;
        --power;
    }
    const double t = (mantissa - 1) / (mantissa + 1), square = t * t;
    double sum = 0;
    for (int i = 23; i >= 1; i -= 2) sum = 1.0 / i + square * sum;
    return 2 * t * sum + power * ln2_low + power * ln2_high;
}

}  // namespace lockstep
