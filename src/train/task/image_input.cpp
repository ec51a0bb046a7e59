// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/axes.hpp"

#include "task/field_input.hpp"

#include <algorithm>

#include <ATen/Functions.h>

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
std::vector<std::uint8_t> channels_first(std::span<const std::uint8_t> images,
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
        if (has_channels_last_) bytes = moved = channels_first(bytes, transform_.input());
        at::Tensor images = empty_input(static_cast<std::int64_t>(ids.size()), shape());
        transform_.apply(bytes, ids, key, PixelLayout::nhwc, values_of(images));
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

  private:
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
