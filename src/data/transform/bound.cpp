// SPDX-License-Identifier: Apache-2.0
#include "transform/bound.hpp"

#include "lockstep/core/error.hpp"

#include "transform/pixel.hpp"
#include "transform/stages.hpp"

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

// Values of torchvision's documentation for models trained on ImageNet.
constexpr std::array imagenet_mean = {0.485, 0.456, 0.406};
constexpr std::array imagenet_std = {0.229, 0.224, 0.225};

bool uses_imagenet(const TransformPipeline& pipeline) {
    return std::ranges::any_of(pipeline.ops(), [](const TransformOp& op) {
        return op.kind == TransformKind::normalise && op.statistics == Statistics::imagenet;
    });
}

std::vector<float> per_channel(std::span<const double> values, int channels, float otherwise) {
    std::vector<float> filled(static_cast<std::size_t>(channels), otherwise);
    for (std::size_t i = 0; i < std::min(values.size(), filled.size()); ++i)
        filled[i] = static_cast<float>(values[i] * 255);
    return filled;
}

StretchTaps taps_of(const TransformStage& stage) {
    StretchTaps taps;
    if (stage.kind != StageKind::resize) return taps;
    for (int x = 0; x < stage.out_width; ++x) {
        const pixel::Tap tap = pixel::resize_tap(x, stage.in_width, stage.out_width);
        taps.first.push_back(tap.first);
        taps.second.push_back(tap.second);
        taps.share.push_back(tap.share);
    }
    return taps;
}

}  // namespace

BoundTransform::BoundTransform(const TransformPipeline& pipeline,
                               const ImageShape& shape,
                               std::span<const double> field_mean,
                               std::span<const double> field_std)
    : ops(pipeline.ops()),
      input(shape),
      output(pipeline.output_shape(shape)),
      plan(plan_stages(pipeline, shape)),
      rows(row_kernels().back()) {
    const bool imagenet = uses_imagenet(pipeline);
    mean = per_channel(imagenet ? imagenet_mean : field_mean, shape.channels, 0);
    scale = per_channel(imagenet ? imagenet_std : field_std, shape.channels, 255);
    std::ranges::replace(scale, 0.0F, 255.0F);  // a channel that is the same everywhere
    for (const TransformStage& stage : plan.stages) taps.push_back(taps_of(stage));
}

std::size_t BoundTransform::largest_image() const {
    std::size_t largest = output.values();
    for (const TransformStage& stage : plan.stages)
        largest =
            std::max({largest,
                      ImageShape{stage.channels, stage.in_height, stage.in_width}.values(),
                      ImageShape{stage.channels, stage.out_height, stage.out_width}.values()});
    return largest;
}

ImageTransform::ImageTransform(const TransformPipeline& pipeline,
                               const ImageShape& input,
                               std::span<const double> mean,
                               std::span<const double> std)
    : bound_(std::make_unique<BoundTransform>(pipeline, input, mean, std)) {}
ImageTransform::~ImageTransform() = default;
ImageTransform::ImageTransform(ImageTransform&&) noexcept = default;

const ImageShape& ImageTransform::input() const {
    return bound_->input;
}
const ImageShape& ImageTransform::output() const {
    return bound_->output;
}
std::span<const TransformStage> ImageTransform::stages() const {
    return bound_->plan.stages;
}
std::span<const float> ImageTransform::mean() const {
    return bound_->mean;
}
std::span<const float> ImageTransform::scale() const {
    return bound_->scale;
}

std::vector<StageDraw> ImageTransform::draw(std::span<const std::uint64_t> ids,
                                            TransformKey key) const {
    const std::size_t stages = bound_->plan.stages.size();
    std::vector<StageDraw> draws(ids.size() * stages);
    for (std::size_t i = 0; i < ids.size(); ++i)
        draw_image(bound_->plan, ids[i], key, std::span(draws).subspan(i * stages, stages));
    return draws;
}

}  // namespace lockstep
