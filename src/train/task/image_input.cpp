// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/data/manifest.hpp"

#include "task/field_input.hpp"

#include <algorithm>
#include <array>

#include <ATen/Functions.h>
#include <c10/core/StreamGuard.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

namespace lockstep {
namespace {

// From [n, H, W, C] to [n, C, H, W].
std::vector<std::uint8_t> with_channels_first(std::span<const std::uint8_t> images,
                                              const ImageShape& shape) {
    std::vector<std::uint8_t> first(images.size());
    const auto channels = static_cast<std::size_t>(shape.channels);
    const std::size_t pixels = shape.values() / channels;
    for (std::size_t image = 0; image < images.size(); image += shape.values())
        for (std::size_t pixel = 0; pixel < pixels; ++pixel)
            for (std::size_t c = 0; c < channels; ++c)
                first[image + c * pixels + pixel] = images[image + pixel * channels + c];
    return first;
}

template <class Range>
at::Tensor uploaded(const DeviceStage& stage, const Range& values) {
    return stage.upload(std::as_bytes(std::span(values)));
}

std::span<float> values_of(at::Tensor& images) {
    return {images.data_ptr<float>(), static_cast<std::size_t>(images.numel())};
}

ImageShape stored_image_shape(const Field& images) {
    std::vector<std::int64_t> shape = images.shape;
    if (shape.size() == 2) shape.insert(shape.begin(), 1);
    if (has_channels_last(images)) std::ranges::rotate(shape, shape.begin() + 2);
    const auto extent = [&](std::size_t i) { return static_cast<int>(shape[i]); };
    return {extent(0), extent(1), extent(2)};
}

class ImageInput : public FieldInput {
  public:
    ImageInput(const Field& field, const TransformPipeline& pipeline, const Field& statistics)
        : field_(field),
          has_channels_last_(has_channels_last(field)),
          transform_(pipeline,
                     stored_image_shape(field),
                     statistics.mean,
                     statistics.std,
                     field.type == ElementType::u8 ? 255 : 1) {}

    ImageShape shape() const override { return transform_.output(); }

    at::Tensor read(std::span<const std::byte> rows, const KeyedSamples& samples) const override {
        at::Tensor images = empty_input(static_cast<std::int64_t>(samples.ids.size()), shape());
        if (!has_bytes()) {
            at::Tensor numbers = floats(rows, samples.ids.size());
            const std::span<const float> values = values_of(numbers);
            transform_.apply(
                values, samples.ids, samples.key, PixelLayout::nhwc, values_of(images));
            return images;
        }
        std::span bytes(reinterpret_cast<const std::uint8_t*>(rows.data()), rows.size());
        std::vector<std::uint8_t> moved;
        if (has_channels_last_) bytes = moved = with_channels_first(bytes, transform_.input());
        transform_.apply(bytes, samples.ids, samples.key, PixelLayout::nhwc, values_of(images));
        return images;
    }

    at::Tensor read_on(const DeviceStage& stage,
                       std::span<const std::byte> rows,
                       const KeyedSamples& samples) const override {
        const auto count = static_cast<std::int64_t>(samples.ids.size());
        at::Tensor stored =
            has_bytes() ? stage.copy(rows) : stage.upload(floats(rows, samples.ids.size()));
        const c10::StreamGuard guard(stage.stream());
        if (has_bytes() && has_channels_last_) stored = channels_first(stored, count);
        const at::Tensor images = empty_input(count, shape(), stage.device());
        const std::size_t scratch = transform_.scratch_values(samples.ids.size());
        const std::array rooms{stage.room(scratch), stage.room(scratch)};
        const at::Tensor draws = uploaded(stage, transform_.draw(samples.ids, samples.key));
        const at::Tensor mean = uploaded(stage, transform_.mean());
        const at::Tensor scale = uploaded(stage, transform_.scale());
        stage.transform(
            plan_launches(transform_,
                          {.images = has_bytes() ? stored.data_ptr<std::uint8_t>() : nullptr,
                           .numbers = has_bytes() ? nullptr : stored.data_ptr<float>(),
                           .draws = static_cast<const StageDraw*>(draws.data_ptr()),
                           .mean = static_cast<const float*>(mean.data_ptr()),
                           .scale = static_cast<const float*>(scale.data_ptr()),
                           .scratch = {rooms[0].data_ptr<float>(), rooms[1].data_ptr<float>()},
                           .out = images.data_ptr<float>(),
                           .layout = PixelLayout::nhwc,
                           .count = count}));
        return images;
    }

    at::Tensor move_masks(const at::Tensor& masks,
                          const KeyedSamples& samples,
                          std::int64_t outside) const override {
        const at::Tensor own = masks.contiguous();
        at::Tensor moved =
            torch::empty({masks.size(0), shape().height, shape().width}, torch::kInt64);
        const auto values = [](const at::Tensor& tensor) {
            return std::span(tensor.data_ptr<std::int64_t>(),
                             static_cast<std::size_t>(tensor.numel()));
        };
        transform_.move_masks(values(own), samples.ids, samples.key, outside, values(moved));
        return moved;
    }

    std::vector<MixRow> mix(const DeviceStage* stage,
                            at::Tensor& values,
                            const KeyedSamples& samples,
                            std::span<const std::uint8_t> valid) const override {
        std::vector<MixRow> rows = transform_.mix_rows(samples.ids, samples.key, valid);
        if (rows.empty()) return rows;
        if (stage == nullptr) {
            transform_.mix(values_of(values), rows, PixelLayout::nhwc);
            return rows;
        }
        const c10::StreamGuard guard(stage->stream());
        const at::Tensor unmixed = values.clone(), there = uploaded(*stage, rows);
        stage->mix({.in = unmixed.data_ptr<float>(),
                    .out = values.data_ptr<float>(),
                    .rows = static_cast<const MixRow*>(there.data_ptr()),
                    .channels = shape().channels,
                    .height = shape().height,
                    .width = shape().width,
                    .layout = PixelLayout::nhwc,
                    .images = static_cast<std::int64_t>(samples.ids.size())});
        return rows;
    }

  private:
    bool has_bytes() const { return field_.type == ElementType::u8; }

    // [n, C, H, W] of numbers that are no bytes.
    at::Tensor floats(std::span<const std::byte> rows, std::size_t samples) const {
        const at::Tensor stored = stored_rows(rows, field_, samples);
        const at::Tensor images = has_channels_last_ ? stored.permute({0, 3, 1, 2}) : stored;
        return images.to(torch::kFloat32).contiguous();
    }

    at::Tensor channels_first(const at::Tensor& bytes, std::int64_t samples) const {
        const auto [channels, height, width] = transform_.input();
        return bytes.reshape({samples, height, width, channels}).permute({0, 3, 1, 2}).contiguous();
    }

    Field field_;
    bool has_channels_last_;
    ImageTransform transform_;
};

class MaskInput : public FieldInput {
  public:
    MaskInput(const Field& field, const FieldInput& image, std::int64_t outside)
        : stored_(make_raw_input(field)), image_(image), outside_(outside) {}

    ImageShape shape() const override { return {1, image_.shape().height, image_.shape().width}; }

    at::Tensor read(std::span<const std::byte> rows, const KeyedSamples& samples) const override {
        return image_.move_masks(stored_->read(rows, samples), samples, outside_);
    }

  private:
    std::unique_ptr<FieldInput> stored_;
    const FieldInput& image_;
    std::int64_t outside_;
};

void check_has_imagenets_unit(const Field& field, const TransformPipeline& pipeline) {
    const bool is_real = field.type == ElementType::f32 || field.type == ElementType::f64;
    const bool is_asked = std::ranges::any_of(pipeline.ops(), [](const TransformOp& op) {
        return op.kind == TransformKind::normalise && op.statistics == Statistics::imagenet;
    });
    check(field.type == ElementType::u8 || is_real || !is_asked, [&] {
        return Error("E248",
                     fmt::format("'{}' does not go with {}", pipeline.text(), field.name),
                     fmt::format("ImageNet's statistics are of values 0 to 1, and these are {}",
                                 element_name(field.type)),
                     "drop imagenet: 'normalise' takes the data's own mean and deviation");
    });
}

Error unmoved(const TransformPipeline& pipeline, const std::string& why) {
    return Error("E248",
                 fmt::format("'{}' would move images, but not their masks", pipeline.text()),
                 why,
                 "pack masks of whole numbers [H, W] of the images' size, or drop --transform");
}

}  // namespace

std::unique_ptr<FieldInput> make_image_input(const Field& field,
                                             const TransformPipeline& pipeline,
                                             const Field& statistics) {
    check_has_imagenets_unit(field, pipeline);
    return std::make_unique<ImageInput>(field, pipeline, statistics);
}

void check_masks_follow(const TransformPipeline& pipeline,
                        const Field& masks,
                        const Field& images) {
    const bool is_whole = masks.type != ElementType::f32 && masks.type != ElementType::f64;
    const ImageShape pixels = stored_image_shape(images);
    check(is_whole && masks.shape.size() == 2, [&] {
        return unmoved(pipeline,
                       fmt::format("those are {} [{}], and whole numbers [H, W] can be moved",
                                   element_name(masks.type),
                                   fmt::join(masks.shape, ", ")));
    });
    check(masks.shape[0] == pixels.height && masks.shape[1] == pixels.width, [&] {
        return unmoved(pipeline,
                       fmt::format("'masks' are [{}], and '{}' {} x {}",
                                   fmt::join(masks.shape, ", "),
                                   images.name,
                                   pixels.height,
                                   pixels.width));
    });
}

std::unique_ptr<FieldInput> make_mask_input(const Field& field,
                                            const FieldInput& image,
                                            std::int64_t outside) {
    return std::make_unique<MaskInput>(field, image, outside);
}

}  // namespace lockstep
