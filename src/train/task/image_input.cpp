// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/manifest.hpp"

#include "task/field_input.hpp"

#include <algorithm>
#include <array>

#include <ATen/Functions.h>
#include <c10/core/StreamGuard.h>

namespace lockstep {
namespace {

ImageShape stored_shape(const Field& images) {
    std::vector<std::int64_t> shape = images.shape;
    if (shape.size() == 2) shape.insert(shape.begin(), 1);
    if (has_channels_last(images)) std::ranges::rotate(shape, shape.begin() + 2);
    const auto extent = [&](std::size_t i) { return static_cast<int>(shape[i]); };
    return {extent(0), extent(1), extent(2)};
}

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

class ImageInput : public FieldInput {
  public:
    ImageInput(const Field& field, const TransformPipeline& pipeline, const Field& statistics)
        : has_channels_last_(has_channels_last(field)),
          transform_(pipeline, stored_shape(field), statistics.mean, statistics.std) {}

    ImageShape shape() const override { return transform_.output(); }

    at::Tensor read(std::span<const std::byte> rows,
                    std::span<const std::uint64_t> ids,
                    TransformKey key) const override {
        std::span bytes(reinterpret_cast<const std::uint8_t*>(rows.data()), rows.size());
        std::vector<std::uint8_t> moved;
        if (has_channels_last_) bytes = moved = with_channels_first(bytes, transform_.input());
        at::Tensor images = empty_input(static_cast<std::int64_t>(ids.size()), shape());
        transform_.apply(bytes, ids, key, PixelLayout::nhwc, values_of(images));
        return images;
    }

    at::Tensor read_on(const DeviceStage& stage,
                       std::span<const std::byte> rows,
                       std::span<const std::uint64_t> ids,
                       TransformKey key) const override {
        at::Tensor bytes = stage.copy(rows);
        const auto samples = static_cast<std::int64_t>(ids.size());
        const c10::StreamGuard guard(stage.stream());
        if (has_channels_last_) bytes = channels_first(bytes, samples);
        const at::Tensor images = empty_input(samples, shape(), stage.device());
        const std::size_t scratch = transform_.scratch_values(ids.size());
        const std::array rooms{stage.room(scratch), stage.room(scratch)};
        const at::Tensor draws = uploaded(stage, transform_.draw(ids, key));
        const at::Tensor mean = uploaded(stage, transform_.mean());
        const at::Tensor scale = uploaded(stage, transform_.scale());
        stage.transform(
            plan_launches(transform_,
                          {.images = bytes.data_ptr<std::uint8_t>(),
                           .draws = static_cast<const StageDraw*>(draws.data_ptr()),
                           .mean = static_cast<const float*>(mean.data_ptr()),
                           .scale = static_cast<const float*>(scale.data_ptr()),
                           .scratch = {rooms[0].data_ptr<float>(), rooms[1].data_ptr<float>()},
                           .out = images.data_ptr<float>(),
                           .layout = PixelLayout::nhwc,
                           .count = samples}));
        return images;
    }

    std::vector<MixRow> mix(at::Tensor& values,
                            std::span<const std::uint64_t> ids,
                            TransformKey key,
                            std::span<const std::uint8_t> valid) const override {
        std::vector<MixRow> rows = transform_.mix_rows(ids, key, valid);
        if (!rows.empty()) transform_.mix(values_of(values), rows, PixelLayout::nhwc);
        return rows;
    }

    std::vector<MixRow> mix_on(const DeviceStage& stage,
                               at::Tensor& values,
                               std::span<const std::uint64_t> ids,
                               TransformKey key,
                               std::span<const std::uint8_t> valid) const override {
        std::vector<MixRow> rows = transform_.mix_rows(ids, key, valid);
        if (rows.empty()) return rows;
        const c10::StreamGuard guard(stage.stream());
        const at::Tensor unmixed = values.clone(), there = uploaded(stage, rows);
        stage.mix({.in = unmixed.data_ptr<float>(),
                   .out = values.data_ptr<float>(),
                   .rows = static_cast<const MixRow*>(there.data_ptr()),
                   .channels = shape().channels,
                   .height = shape().height,
                   .width = shape().width,
                   .layout = PixelLayout::nhwc,
                   .images = static_cast<std::int64_t>(ids.size())});
        return rows;
    }

  private:
    at::Tensor channels_first(const at::Tensor& bytes, std::int64_t samples) const {
        const auto [channels, height, width] = transform_.input();
        return bytes.reshape({samples, height, width, channels}).permute({0, 3, 1, 2}).contiguous();
    }

    bool has_channels_last_;
    ImageTransform transform_;
};

}  // namespace

std::unique_ptr<FieldInput> make_image_input(const Field& field,
                                             const TransformPipeline& pipeline,
                                             const Field& statistics) {
    return std::make_unique<ImageInput>(field, pipeline, statistics);
}

}  // namespace lockstep
