// SPDX-License-Identifier: Apache-2.0
#include "field_input.hpp"

#include <ATen/Functions.h>
#include <torch/types.h>

namespace lockstep {

at::Tensor empty_input(std::int64_t samples, const ImageShape& shape) {
    const auto layout =
        torch::TensorOptions(torch::kFloat32).memory_format(at::MemoryFormat::ChannelsLast);
    return torch::empty({samples, shape.channels, shape.height, shape.width}, layout);
}

bool has_channels_last(const Field& field) {
    return field.layout == "HWC" && field.shape.size() == 3;
}

std::unique_ptr<FieldInput> make_field_input(const Field& field,
                                             const TransformPipeline& pipeline,
                                             const Field& statistics) {
    const bool is_image =
        field.type == ElementType::u8 && (field.shape.size() == 2 || field.shape.size() == 3);
    return is_image ? make_image_input(field, pipeline, statistics)
                    : make_number_input(field, pipeline, statistics);
}

}  // namespace lockstep
