// SPDX-License-Identifier: Apache-2.0
#include "task/field_input.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/data/manifest.hpp"

#include <algorithm>
#include <array>

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <torch/types.h>

namespace lockstep {
namespace {

at::ScalarType stored_type(ElementType type) {
    constexpr std::array types = {
        torch::kUInt8, torch::kInt32, torch::kInt64, torch::kFloat32, torch::kFloat64};
    return types.at(static_cast<std::size_t>(type));
}

std::vector<std::int64_t> batch_extents(const Field& field, std::int64_t samples) {
    std::vector<std::int64_t> extents{samples};
    extents.insert(extents.end(), field.shape.begin(), field.shape.end());
    return extents;
}

bool is_volume(const Field& field) {
    return field.shape.size() == 4;
}

int depth_of(const Field& field) {
    return is_volume(field) ? static_cast<int>(field.shape[1]) : 1;
}

// In f32 a pressure of 101325 +- 300 would lose digits that the difference still has.
at::ScalarType computed_type(ElementType type) {
    return type == ElementType::u8 ? torch::kFloat32 : torch::kFloat64;
}

// [n, ...] as stored, seen as [n, C, H, W]; volumes are [n, C, D, H, W].
at::Tensor as_images(const at::Tensor& stored, const Field& field) {
    const std::size_t dimensions = field.shape.size();
    if (dimensions == 0) return stored.reshape({-1, 1, 1, 1});
    if (dimensions == 1) return stored.unsqueeze(2).unsqueeze(3);
    if (dimensions == 2) return stored.unsqueeze(1);
    return has_channels_last(field) ? stored.permute({0, 3, 1, 2}) : stored;
}

ImageShape shape_of(const Field& field) {
    const at::Tensor one = as_images(torch::empty(batch_extents(field, 1), torch::kUInt8), field);
    const auto extent = [&](int i) { return static_cast<int>(one.size(i)); };
    return {extent(1), extent(-2), extent(-1)};
}

// [1, ...] by statistics_axis(), or one number for all; undefined where there is none.
at::Tensor by_place(std::vector<double> numbers, const Field& field, double otherwise) {
    if (numbers.empty()) return {};
    std::vector<std::int64_t> extents(field.shape.size() + 1, 1);
    const auto axis = statistics_axis(field);
    if (axis && numbers.size() > 1) extents[*axis + 1] = field.shape[*axis];
    numbers.resize(static_cast<std::size_t>(axis ? extents[*axis + 1] : 1), otherwise);
    return torch::tensor(numbers, torch::kFloat64).reshape(extents);
}

std::vector<double> divisors(std::vector<double> deviations) {
    std::ranges::replace(deviations, 0.0, 1.0);
    return deviations;
}

class NumberInput : public FieldInput {
  public:
    NumberInput(const Field& field, const Field& statistics)
        : field_(field),
          shape_(shape_of(field)),
          mean_(by_place(statistics.mean, field, 0)),
          divisor_(by_place(divisors(statistics.std), field, 1)) {
        const at::ScalarType computed = computed_type(field.type);
        if (mean_.defined()) mean_ = mean_.to(computed);
        if (divisor_.defined()) divisor_ = divisor_.to(computed);
    }

    ImageShape shape() const override { return shape_; }
    int depth() const override { return depth_of(field_); }

    at::Tensor read(std::span<const std::byte> rows, const KeyedSamples& samples) const override {
        at::Tensor values =
            stored_rows(rows, field_, samples.ids.size()).to(computed_type(field_.type));
        if (field_.type == ElementType::u8) values = values / 255;
        if (mean_.defined()) values = values - mean_;
        if (divisor_.defined()) values = values / divisor_;
        if (is_volume(field_)) return torch::empty(values.sizes()).copy_(values);
        return empty_input(values.size(0), shape_).copy_(as_images(values, field_));
    }

  private:
    Field field_;
    ImageShape shape_;
    at::Tensor mean_, divisor_;
};

// Targets and tokens for a model that compares them itself.
class RawInput : public FieldInput {
  public:
    explicit RawInput(Field field) : field_(std::move(field)) {}

    ImageShape shape() const override {
        const std::size_t dimensions = field_.shape.size();
        const auto extent = [&](std::size_t from_end) {
            return from_end <= dimensions ? static_cast<int>(field_.shape[dimensions - from_end])
                                          : 1;
        };
        return {extent(is_volume(field_) ? 4 : 3), extent(2), extent(1)};
    }
    int depth() const override { return depth_of(field_); }

    at::Tensor read(std::span<const std::byte> rows, const KeyedSamples& samples) const override {
        const at::Tensor stored = stored_rows(rows, field_, samples.ids.size());
        return stored.to(stored.is_floating_point() ? torch::kFloat32 : torch::kInt64,
                         /*non_blocking=*/false,
                         /*copy=*/true);
    }

  private:
    Field field_;
};

// All tokens of a sample but the last, which nothing follows.
class TokenInput : public FieldInput {
  public:
    explicit TokenInput(const Field& field) : field_(field) {}

    ImageShape shape() const override { return {1, 1, static_cast<int>(field_.shape[0] - 1)}; }

    at::Tensor read(std::span<const std::byte> rows, const KeyedSamples& samples) const override {
        return stored_rows(rows, field_, samples.ids.size())
            .narrow(1, 0, field_.shape[0] - 1)
            .to(torch::kInt64)
            .contiguous();
    }

  private:
    Field field_;
};

// Makes an input of numbers of any type, up to four dimensions: (value - mean) / deviation by
// channel, if `statistics` has them; a deviation of 0 divides by 1. One dimension becomes channels
// of 1 x 1, none a single channel. u8 are first divided by 255. u8 are computed in f32, others in
// f64. Errors: E248 if `pipeline` does more than normalise.
std::unique_ptr<FieldInput> make_number_input(const Field& field,
                                              const TransformPipeline& pipeline,
                                              const Field& statistics) {
    check(pipeline == TransformPipeline(), [&] {
        return Error("E248",
                     fmt::format("'{}' is for images", pipeline.text()),
                     fmt::format("field '{}' holds {} of {} dimensions without an image's name or "
                                 "layout, which are normalised only",
                                 field.name,
                                 element_name(field.type),
                                 field.shape.size()),
                     "drop --transform, or call them images, as by --field images=/PATH:CHW");
    });
    return std::make_unique<NumberInput>(field, statistics);
}

// Makes an input of tokens of any whole type [T + 1]: the first T. Its shape is 1 x 1 x T. Errors:
// E217 if there is no room for two, E248 if `pipeline` does more than normalise.
std::unique_ptr<FieldInput> make_token_input(const Field& field,
                                             const TransformPipeline& pipeline) {
    const bool has_room = field.shape.size() == 1 && field.shape[0] > 1;
    check(has_room, [&] {
        return Error("E217",
                     fmt::format("'{}' has no sequences of two tokens or more", field.name),
                     "a sample is [T + 1]: T tokens, and the one that follows",
                     "pack them with 'lockstep data pack --text' or --tokens");
    });
    check(pipeline == TransformPipeline(), [&] {
        return Error("E248",
                     fmt::format("'{}' is for images", pipeline.text()),
                     fmt::format("field '{}' holds tokens", field.name),
                     "drop --transform");
    });
    return std::make_unique<TokenInput>(field);
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

std::unique_ptr<FieldInput> make_raw_input(const Field& field) {
    return std::make_unique<RawInput>(field);
}

}  // namespace lockstep
