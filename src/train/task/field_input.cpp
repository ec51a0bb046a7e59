// SPDX-License-Identifier: Apache-2.0
#include "task/field_input.hpp"

#include <array>

#include <ATen/Functions.h>
#include <torch/types.h>

namespace lockstep {
namespace {

at::ScalarType stored_type(ElementType type) {
    constexpr std::array types = {
        torch::kUInt8, torch::kInt32, torch::kInt64, torch::kFloat32, torch::kFloat64};
    return types.at(static_cast<std::size_t>(type));
}

}  // namespace

// Copies the host's result; images, which are larger as floats, have a method of their own.
at::Tensor FieldInput::read_on(const DeviceStage& stage,
                               std::span<const std::byte> rows,
                               const KeyedSamples& samples) const {
    return stage.upload(read(rows, samples));
}

at::Tensor FieldInput::move_masks(const at::Tensor& masks,
                                  const KeyedSamples&,
                                  std::int64_t) const {
    return masks;
}

std::vector<MixRow> FieldInput::mix(const DeviceStage*,
                                    at::Tensor&,
                                    const KeyedSamples&,
                                    std::span<const std::uint8_t>) const {
    return {};
}

at::Tensor empty_input(std::int64_t samples, const ImageShape& shape, at::Device device) {
    const auto layout = torch::TensorOptions(torch::kFloat32)
                            .device(device)
                            .memory_format(at::MemoryFormat::ChannelsLast);
    return torch::empty({samples, shape.channels, shape.height, shape.width}, layout);
}

std::vector<std::int64_t> batch_extents(const Field& field, std::int64_t samples) {
    std::vector<std::int64_t> extents{samples};
    extents.insert(extents.end(), field.shape.begin(), field.shape.end());
    return extents;
}

at::Tensor stored_rows(std::span<const std::byte> rows, const Field& field, std::size_t samples) {
    return torch::from_blob(const_cast<std::byte*>(rows.data()),
                            batch_extents(field, static_cast<std::int64_t>(samples)),
                            stored_type(field.type));
}

bool is_image(const Field& field) {
    const bool has_pixels = field.shape.size() == 2 || field.shape.size() == 3;
    const bool is_picture = field.type == ElementType::u8 || field.name == "images" ||
                            field.layout == "CHW" || field.layout == "HWC" || field.layout == "HW";
    return field.name != "tokens" && has_pixels && is_picture;
}

std::unique_ptr<FieldInput> make_field_input(const Field& field,
                                             const TransformPipeline& pipeline,
                                             const Field& statistics) {
    if (field.name == "tokens") return make_token_input(field, pipeline);
    // Numbers that are only normalised are so in f64.
    const bool is_transformed = field.type == ElementType::u8 || pipeline != TransformPipeline();
    return is_image(field) && is_transformed ? make_image_input(field, pipeline, statistics)
                                             : make_number_input(field, pipeline, statistics);
}

}  // namespace lockstep
