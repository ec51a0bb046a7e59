// SPDX-License-Identifier: Apache-2.0
#include "task/input.hpp"

#include "lockstep/core/error.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <torch/types.h>

namespace lockstep {
namespace {

std::size_t input_position(const DatasetIndex& index) {
    for (const char* name : {"images", "features", "tokens"})
        if (std::ranges::count(index.fields(), name, &Field::name) > 0)
            return index.field_position(name);
    return index.field_position("images");
}

std::size_t checked_position(const DatasetIndex& index) {
    const std::size_t position = input_position(index);
    const Field& field = index.fields()[position];
    check(!field.shape.empty() && field.shape.size() <= 3, [&] {
        return Error("E217",
                     fmt::format("data set '{}' has '{}' of {} dimensions a sample",
                                 index.path().string(),
                                 field.name,
                                 field.shape.size()),
                     "training takes 'images', 'features' or 'tokens' of one to three",
                     "pack or name them otherwise");
    });
    return position;
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
                         const DatasetIndex& statistics,
                         const Task& task)
    : index_(index),
      task_(task),
      place_(checked_position(index)),
      seed_(seed),
      field_(make_field_input(index.fields()[place_], pipeline, input_field(statistics))) {
    const ImageShape out = field_->shape();
    const Field& field = index.fields()[place_];
    const std::int64_t vocabulary = field.name == "tokens" ? field.classes() : 0;
    shape_ = {out.channels, out.height, out.width, task.outputs(), vocabulary};
}

NamedTensors InputReader::read_inputs(const Batch& batch, const LeafRows& leaf) const {
    const Field& field = index_.fields()[place_];
    const std::size_t row_bytes = field.bytes_per_sample();
    const auto rows =
        batch.fields[place_].subspan(leaf.first_row * row_bytes, leaf.rows * row_bytes);
    return {{field.name, field_->read(rows, ids_of(batch, leaf), key(batch))}};
}

LeafSamples InputReader::read(const Batch& batch, const LeafRows& leaf) const {
    std::span<const std::uint8_t> valid(batch.valid);
    if (!valid.empty()) valid = valid.subspan(leaf.first_row, leaf.rows);
    NamedTensors inputs = read_inputs(batch, leaf);
    const std::vector<MixRow> mixed =
        field_->mix(inputs[0].tensor, ids_of(batch, leaf), key(batch), valid);
    return {.inputs = std::move(inputs),
            .targets = task_.targets({batch, leaf, index_, key(batch), mixed}),
            .weights = weights_of(batch, leaf)};
}

InputReader evaluation_input(const DatasetIndex& index,
                             const DatasetIndex& trained,
                             const TrainSettings& settings,
                             const Task& task) {
    return {index,
            TransformPipeline::parse(settings.transform).evaluation(),
            settings.seed,
            trained,
            task};
}

}  // namespace lockstep
