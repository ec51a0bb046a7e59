// SPDX-License-Identifier: Apache-2.0
#include "input.hpp"

#include "lockstep/core/error.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <torch/types.h>

namespace lockstep {
namespace {

Error wrong_field(const DatasetIndex& index, const std::string& what) {
    return Error("E217",
                 fmt::format("data set '{}' {}", index.path().string(), what),
                 "training takes images u8 [n,C,H,W], [n,H,W] or, called HWC, [n,H,W,C] and labels "
                 "of whole numbers [n]",
                 "store images as whole numbers of 0 to 255, u8, and pack or name them again");
}

std::size_t checked_images(const DatasetIndex& index) {
    const std::size_t position = index.field_position("images");
    const Field& images = index.fields()[position];
    const bool has_channels = images.shape.size() == 3;
    check(images.type == ElementType::u8 && (has_channels || images.shape.size() == 2),
          [&] { return wrong_field(index, "has images of another type or shape"); });
    return position;
}

bool has_channels_last(const Field& images) {
    return images.layout == "HWC" && images.shape.size() == 3;
}

ImageTransform transform_of(const Field& images, const TransformPipeline& pipeline) {
    std::vector<std::int64_t> shape = images.shape;
    if (shape.size() == 2) shape.insert(shape.begin(), 1);
    if (has_channels_last(images)) std::ranges::rotate(shape, shape.begin() + 2);
    const auto extent = [&](std::size_t i) { return static_cast<int>(shape[i]); };
    return {pipeline, {extent(0), extent(1), extent(2)}, images.mean, images.std};
}

bool is_label_type(ElementType type) {
    return type == ElementType::u8 || type == ElementType::i32 || type == ElementType::i64;
}

// The rows of one leaf.
std::span<const std::uint8_t> images_of(std::span<const std::byte> field,
                                        const LeafRows& leaf,
                                        std::size_t row_bytes) {
    return {reinterpret_cast<const std::uint8_t*>(field.data()) + leaf.first_row * row_bytes,
            leaf.rows * row_bytes};
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

at::Tensor labels_of(std::span<const std::byte> field, const LeafRows& leaf, ElementType type) {
    const at::ScalarType stored = type == ElementType::u8    ? torch::kUInt8
                                  : type == ElementType::i32 ? torch::kInt32
                                                             : torch::kInt64;
    const std::byte* const first = field.data() + leaf.first_row * element_bytes(type);
    const auto rows = static_cast<std::int64_t>(leaf.rows);
    return torch::from_blob(const_cast<std::byte*>(first), {rows}, stored).to(torch::kInt64);
}

std::span<const std::uint64_t> ids_of(const Batch& batch, const LeafRows& leaf) {
    return std::span(batch.sample_ids).subspan(leaf.first_row, leaf.rows);
}

std::span<float> values_of(at::Tensor& images) {
    return {images.data_ptr<float>(), static_cast<std::size_t>(images.numel())};
}

at::Tensor weights_of(const Batch& batch, const LeafRows& leaf) {
    if (batch.valid.empty()) return {};
    at::Tensor weights = torch::empty({static_cast<std::int64_t>(leaf.rows)});
    for (std::size_t row = 0; row < leaf.rows; ++row)
        weights.data_ptr<float>()[row] = batch.valid[leaf.first_row + row] != 0 ? 1.0F : 0.0F;
    return weights;
}

}  // namespace

InputReader::InputReader(const DatasetIndex& index,
                         const TransformPipeline& pipeline,
                         std::uint64_t seed)
    : images_(checked_images(index)),
      labels_(index.field_position("labels")),
      label_type_(index.fields()[labels_].type),
      has_channels_last_(has_channels_last(index.fields()[images_])),
      seed_(seed),
      transform_(transform_of(index.fields()[images_], pipeline)) {
    const Field& labels = index.fields()[labels_];
    check(is_label_type(labels.type) && labels.shape.empty() && labels.classes() > 0,
          [&] { return wrong_field(index, "has labels of another type or shape"); });
    const ImageShape& out = transform_.output();
    shape_ = {out.channels, out.height, out.width, labels.classes()};
}

LeafInput LeafInput::part(std::int64_t first, std::int64_t rows) const {
    const auto cut = [&](const at::Tensor& tensor) {
        return tensor.defined() ? tensor.narrow(0, first, rows) : tensor;
    };
    return {cut(images), cut(labels), cut(partner_labels), cut(lambda), cut(weights)};
}

LeafInput InputReader::read(const Batch& batch, const LeafRows& leaf) const {
    const auto rows = static_cast<std::int64_t>(leaf.rows);
    auto bytes = images_of(batch.fields[images_], leaf, transform_.input().values());
    std::vector<std::uint8_t> moved;
    if (has_channels_last_) bytes = moved = channels_first(bytes, transform_.input());
    // Channels innermost: the layout in which convolutions and pooling use whole vectors.
    const auto layout =
        torch::TensorOptions(torch::kFloat32).memory_format(at::MemoryFormat::ChannelsLast);
    LeafInput input{
        .images = torch::empty({rows, shape_.channels, shape_.height, shape_.width}, layout),
        .labels = labels_of(batch.fields[labels_], leaf, label_type_),
        .partner_labels = {},
        .lambda = {},
        .weights = weights_of(batch, leaf)};
    const TransformKey key{seed_, batch.position.epoch};
    transform_.apply(bytes, ids_of(batch, leaf), key, PixelLayout::nhwc, values_of(input.images));
    mix(batch, leaf, key, input);
    return input;
}

void InputReader::mix(const Batch& batch,
                      const LeafRows& leaf,
                      TransformKey key,
                      LeafInput& input) const {
    std::span<const std::uint8_t> valid(batch.valid);
    if (!valid.empty()) valid = valid.subspan(leaf.first_row, leaf.rows);
    const std::vector<MixRow> rows = transform_.mix_rows(ids_of(batch, leaf), key, valid);
    if (rows.empty()) return;
    transform_.mix(values_of(input.images), rows, PixelLayout::nhwc);
    const MixedLabels mixed = mix_labels({input.labels.data_ptr<std::int64_t>(), leaf.rows}, rows);
    input.partner_labels = torch::tensor(mixed.second, torch::kInt64);
    input.lambda = torch::tensor(mixed.lambda);
}

}  // namespace lockstep
