// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/transform.hpp"

#include "transform/stages.hpp"
#include "transform/text.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {
namespace {

using enum TransformKind;

std::string size_text(const TransformOp& op) {
    return op.width == op.height ? fmt::format("{}", op.height)
                                 : fmt::format("{}x{}", op.height, op.width);
}

std::string resize_text(const TransformOp& op) {
    return op.width == 0 ? fmt::format("resize {}", op.height)
                         : fmt::format("resize {}x{}", op.height, op.width);
}

/// -0 would be another text of the same bits.
double plain(double value) {
    return value == 0 ? 0 : value;
}

}  // namespace

std::string text_of(const TransformOp& op) {
    switch (op.kind) {
        case resize:
            return resize_text(op);
        case crop:
            return fmt::format("crop {} pad {}", size_text(op), op.size);
        case centre_crop:
            return fmt::format("centre-crop {}", size_text(op));
        case flip:
            return fmt::format("flip {}", plain(op.high));
        case rotate:
            return fmt::format("rotate {}", plain(op.high));
        case blur:
            return fmt::format("blur {} {}-{}", op.size, op.low, op.high);
        case cutout:
            return fmt::format("cutout {}", op.size);
        case normalise:
            return op.statistics == Statistics::imagenet ? "normalise imagenet" : "normalise";
        case mixup:
            return fmt::format("mixup {}", op.high);
        case cutmix:
            return fmt::format("cutmix {}", op.high);
    }
    return {};
}

std::string TransformPipeline::text() const {
    std::vector<std::string> texts;
    for (const TransformOp& op : ops_) texts.push_back(text_of(op));
    return fmt::format("{}", fmt::join(texts, ", "));
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

}  // namespace lockstep
