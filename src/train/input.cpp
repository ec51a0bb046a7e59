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

at::Tensor per_channel(const std::vector<double>& values, std::int64_t channels, double otherwise) {
    std::vector<float> filled(static_cast<std::size_t>(channels), static_cast<float>(otherwise));
    for (std::size_t i = 0; i < values.size() && i < filled.size(); ++i)
        filled[i] = static_cast<float>(values[i] * 255);
    return torch::tensor(filled).view({channels, 1, 1});
}

}  // namespace

InputReader::InputReader(const DatasetIndex& index)
    : images_(index.field_position("images")), labels_(index.field_position("labels")) {
    const Field& images = index.fields()[images_];
    const Field& labels = index.fields()[labels_];
    check(images.type == ElementType::u8 && images.shape.size() == 3,
          [&] { return wrong_field(index, "has images of another type or shape"); });
    check(labels.type == ElementType::i64 && labels.shape.empty() && labels.classes() > 0,
          [&] { return wrong_field(index, "has labels of another type or shape"); });
    shape_ = {images.shape[0], images.shape[1], images.shape[2], labels.classes()};
    mean_ = per_channel(images.mean, shape_.channels, 0);
    scale_ = per_channel(images.std, shape_.channels, 255);
}

LeafInput InputReader::read(const Batch& batch, const LeafRows& leaf) const {
    const auto rows = static_cast<std::int64_t>(leaf.rows);
    const auto pixels = static_cast<std::size_t>(shape_.channels * shape_.height * shape_.width);
    auto* bytes = const_cast<std::byte*>(batch.fields[images_].data() + leaf.first_row * pixels);
    auto* labels = const_cast<std::byte*>(batch.fields[labels_].data() +
                                          leaf.first_row * sizeof(std::int64_t));
    const at::Tensor raw = torch::from_blob(
        bytes, {rows, shape_.channels, shape_.height, shape_.width}, torch::kUInt8);
    // Channels innermost: the layout in which convolutions and pooling use whole vectors.
    const auto layout =
        torch::TensorOptions(torch::kFloat32).memory_format(at::MemoryFormat::ChannelsLast);
    at::Tensor images = torch::empty(raw.sizes(), layout);
    images.copy_(raw);
    return {.images = images.sub_(mean_).div_(scale_),
            .labels = torch::from_blob(labels, {rows}, torch::kInt64)};
}

}  // namespace lockstep
