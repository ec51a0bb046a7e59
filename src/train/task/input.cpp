// SPDX-License-Identifier: Apache-2.0
#include "task/input.hpp"

#include "lockstep/core/error.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <torch/types.h>

namespace lockstep {
namespace {

Error wrong_field(const DatasetIndex& index, const std::string& what) {
    return Error("E217",
                 fmt::format("data set '{}' {}", index.path().string(), what),
                 "training takes 'images' or 'features' of one to three dimensions a sample and "
                 "'labels' of whole numbers [n]",
                 "pack or name them otherwise");
}

std::size_t input_position(const DatasetIndex& index) {
    const bool has_features = std::ranges::count(index.fields(), "features", &Field::name) > 0;
    const bool has_images = std::ranges::count(index.fields(), "images", &Field::name) > 0;
    return index.field_position(has_features && !has_images ? "features" : "images");
}

std::size_t checked_position(const DatasetIndex& index) {
    const std::size_t position = input_position(index);
    const Field& field = index.fields()[position];
    check(!field.shape.empty() && field.shape.size() <= 3, [&] {
        return wrong_field(
            index,
            fmt::format("has '{}' of {} dimensions a sample", field.name, field.shape.size()));
    });
    return position;
}

bool is_label_type(ElementType type) {
    return type == ElementType::u8 || type == ElementType::i32 || type == ElementType::i64;
}

at::Tensor labels_of(std::span<const std::byte> field, const LeafRows& leaf, ElementType type) {
    const std::byte* const first = field.data() + leaf.first_row * element_bytes(type);
    const auto rows = static_cast<std::int64_t>(leaf.rows);
    return torch::from_blob(const_cast<std::byte*>(first), {rows}, stored_type(type))
        .to(torch::kInt64);
}

std::span<const std::uint64_t> ids_of(const Batch& batch, const LeafRows& leaf) {
    return std::span(batch.sample_ids).subspan(leaf.first_row, leaf.rows);
}

at::Tensor weights_of(const Batch& batch, const LeafRows& leaf) {
    if (batch.valid.empty()) return {};
    at::Tensor weights = torch::empty({static_cast<std::int64_t>(leaf.rows)});
    for (std::size_t row = 0; row < leaf.rows; ++row)
        weights.data_ptr<float>()[row] = batch.valid[leaf.first_row + row] != 0 ? 1.0F : 0.0F;
    return weights;
}

}  // namespace

const Field& input_field(const DatasetIndex& index) {
    return index.fields()[checked_position(index)];
}

InputReader::InputReader(const DatasetIndex& index,
                         const TransformPipeline& pipeline,
                         std::uint64_t seed,
                         const DatasetIndex& statistics)
    : samples_(checked_position(index)),
      labels_(index.field_position("labels")),
      row_bytes_(index.fields()[samples_].bytes_per_sample()),
      label_type_(index.fields()[labels_].type),
      seed_(seed),
      field_(make_field_input(index.fields()[samples_], pipeline, input_field(statistics))) {
    const Field& labels = index.fields()[labels_];
    check(is_label_type(labels.type) && labels.shape.empty() && labels.classes() > 0,
          [&] { return wrong_field(index, "has labels of another type or shape"); });
    const ImageShape out = field_->shape();
    shape_ = {out.channels, out.height, out.width, labels.classes()};
}

LeafInput LeafInput::part(std::int64_t first, std::int64_t rows) const {
    const auto cut = [&](const at::Tensor& tensor) {
        return tensor.defined() ? tensor.narrow(0, first, rows) : tensor;
    };
    return {cut(images), cut(labels), cut(partner_labels), cut(lambda), cut(weights)};
}

LeafInput InputReader::read(const Batch& batch, const LeafRows& leaf) const {
    const TransformKey key{seed_, batch.position.epoch};
    const auto rows =
        batch.fields[samples_].subspan(leaf.first_row * row_bytes_, leaf.rows * row_bytes_);
    LeafInput input{.images = field_->read(rows, ids_of(batch, leaf), key),
                    .labels = labels_of(batch.fields[labels_], leaf, label_type_),
                    .partner_labels = {},
                    .lambda = {},
                    .weights = weights_of(batch, leaf)};
    mix(batch, leaf, key, input);
    return input;
}

void InputReader::mix(const Batch& batch,
                      const LeafRows& leaf,
                      TransformKey key,
                      LeafInput& input) const {
    std::span<const std::uint8_t> valid(batch.valid);
    if (!valid.empty()) valid = valid.subspan(leaf.first_row, leaf.rows);
    const std::vector<MixRow> rows = field_->mix(input.images, ids_of(batch, leaf), key, valid);
    if (rows.empty()) return;
    const MixedLabels mixed = mix_labels({input.labels.data_ptr<std::int64_t>(), leaf.rows}, rows);
    input.partner_labels = torch::tensor(mixed.second, torch::kInt64);
    input.lambda = torch::tensor(mixed.lambda);
}

InputReader evaluation_input(const DatasetIndex& index,
                             const DatasetIndex& trained,
                             const TrainSettings& settings) {
    return {
        index, TransformPipeline::parse(settings.transform).evaluation(), settings.seed, trained};
}

}  // namespace lockstep
