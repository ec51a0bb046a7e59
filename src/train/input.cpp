// SPDX-License-Identifier: Apache-2.0
#include "input.hpp"

#include "lockstep/core/error.hpp"

#include <fmt/format.h>
#include <torch/types.h>

namespace lockstep {
namespace {

Error wrong_field(const DatasetIndex& index, const std::string& what) {
    return Error("E217",
                 fmt::format("data set '{}' {}", index.path().string(), what),
                 "training takes images u8 [n,C,H,W] and labels i64 [n]",
                 "pack it again with 'lockstep data pack'");
}

std::size_t checked_images(const DatasetIndex& index) {
    const std::size_t position = index.field_position("images");
    const Field& images = index.fields()[position];
    check(images.type == ElementType::u8 && images.shape.size() == 3,
          [&] { return wrong_field(index, "has images of another type or shape"); });
    return position;
}

ImageTransform transform_of(const Field& images, const TransformPipeline& pipeline) {
    const auto extent = [&](std::size_t i) { return static_cast<int>(images.shape[i]); };
    return {pipeline, {extent(0), extent(1), extent(2)}, images.mean, images.std};
}

// The rows of one leaf, of elements of type T.
template <class T>
std::span<const T> elements(std::span<const std::byte> field,
                            const LeafRows& leaf,
                            std::size_t of) {
    return {reinterpret_cast<const T*>(field.data()) + leaf.first_row * of, leaf.rows * of};
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
      seed_(seed),
      transform_(transform_of(index.fields()[images_], pipeline)) {
    const Field& labels = index.fields()[labels_];
    check(labels.type == ElementType::i64 && labels.shape.empty() && labels.classes() > 0,
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
    const auto bytes =
        elements<std::uint8_t>(batch.fields[images_], leaf, transform_.input().values());
    const auto labels = elements<std::int64_t>(batch.fields[labels_], leaf, 1);
    // Channels innermost: the layout in which convolutions and pooling use whole vectors.
    const auto layout =
        torch::TensorOptions(torch::kFloat32).memory_format(at::MemoryFormat::ChannelsLast);
    LeafInput input{
        .images = torch::empty({rows, shape_.channels, shape_.height, shape_.width}, layout),
        .labels = torch::from_blob(const_cast<std::int64_t*>(labels.data()), {rows}, torch::kInt64),
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
    const MixedLabels mixed =
        mix_labels(elements<std::int64_t>(batch.fields[labels_], leaf, 1), rows);
    input.partner_labels = torch::tensor(mixed.second, torch::kInt64);
    input.lambda = torch::tensor(mixed.lambda);
}

}  // namespace lockstep
