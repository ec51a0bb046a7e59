// SPDX-License-Identifier: Apache-2.0
// Tested: train/task/input_test.cpp, simcuda/feed_test.cpp, e2e/device_test.cpp.
#include "task/field_input.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/data/manifest.hpp"

#include <algorithm>
#include <array>

#include <ATen/Functions.h>
#include <c10/core/StreamGuard.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
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
    // Runs and data that older versions made have images of two dimensions by column.
    const bool is_by_column = field.shape.size() == 2 && numbers.size() > 1;
    const auto axis = is_by_column ? std::optional<std::size_t>(1) : statistics_axis(field);
    if (axis && numbers.size() > 1) extents[*axis + 1] = field.shape[*axis];
    numbers.resize(static_cast<std::size_t>(axis ? extents[*axis + 1] : 1), otherwise);
    return torch::tensor(numbers, torch::kFloat64).reshape(extents).to(computed_type(field.type));
}

std::vector<double> divisors(std::vector<double> deviations) {
    std::ranges::replace(deviations, 0.0, 1.0);
    return deviations;
}

// Returns uninitialised f32 [samples, C, H, W], channels innermost: the layout in which
// convolutions and pooling use whole vectors.
at::Tensor empty_input(std::int64_t samples,
                       const ImageShape& shape,
                       at::Device device = at::kCPU) {
    const auto layout = torch::TensorOptions(torch::kFloat32)
                            .device(device)
                            .memory_format(at::MemoryFormat::ChannelsLast);
    return torch::empty({samples, shape.channels, shape.height, shape.width}, layout);
}

void check_untransformed(const TransformPipeline& pipeline,
                         const std::string& why,
                         const std::string& fix) {
    check(pipeline == TransformPipeline(), [&] {
        return Error("E248", fmt::format("'{}' is for images", pipeline.text()), why, fix);
    });
}

// Numbers of any type, up to four dimensions: (value - mean) / deviation by channel, if
// `statistics` has them; a deviation of 0 divides by 1. One dimension becomes channels of 1 x 1,
// none a single channel. u8 are first divided by 255. u8 are computed in f32, others in f64.
class NumberInput : public FieldInput {
  public:
    /// Errors: E248 if `pipeline` does more than normalise.
    NumberInput(const Field& field, const TransformPipeline& pipeline, const Field& statistics)
        : field_(field),
          shape_(shape_of(field)),
          mean_(by_place(statistics.mean, field, 0)),
          divisor_(by_place(divisors(statistics.std), field, 1)) {
        check_untransformed(
            pipeline,
            fmt::format("field '{}' holds {} of {} dimensions without an image's name or layout, "
                        "which are normalised only",
                        field.name,
                        element_name(field.type),
                        field.shape.size()),
            "drop --transform, or call them images, as by --field images=/PATH:CHW");
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

// All tokens of a sample [T + 1], of any type, but the last, which nothing follows.
class TokenInput : public RawInput {
  public:
    /// Errors: E217 if there is no room for two, E248 if `pipeline` does more than normalise.
    TokenInput(const Field& field, const TransformPipeline& pipeline) : RawInput(field) {
        check(field.shape.size() == 1 && field.shape[0] > 1,
              "E217",
              fmt::format("'{}' has no sequences of two tokens or more", field.name),
              "a sample is [T + 1]: T tokens, and the one that follows",
              "pack them with 'lockstep data pack --text' or --tokens");
        check_untransformed(
            pipeline, fmt::format("field '{}' holds tokens", field.name), "drop --transform");
    }

    ImageShape shape() const override { return {1, 1, RawInput::shape().width - 1}; }

    at::Tensor read(std::span<const std::byte> rows, const KeyedSamples& samples) const override {
        const at::Tensor all = RawInput::read(rows, samples).to(torch::kInt64);
        return all.narrow(1, 0, shape().width).contiguous();
    }
};

template <class Value>
std::span<Value> values_of(const at::Tensor& tensor) {
    return {tensor.data_ptr<Value>(), static_cast<std::size_t>(tensor.numel())};
}

template <class Range>
at::Tensor uploaded(const DeviceStage& stage, const Range& values) {
    return stage.upload(std::as_bytes(std::span(values)));
}

// An input of [C, H, W], [H, W] or, with layout HWC, [H, W, C]: images, through all of a pipeline.
// All but u8 become f32 first, and are not divided by 255.
class ImageInput : public FieldInput {
  public:
    ImageInput(const Field& field, const TransformPipeline& pipeline, const Field& statistics)
        : field_(field),
          transform_(pipeline,
                     shape_of(field),
                     statistics.mean,
                     statistics.std,
                     field.type == ElementType::u8 ? 255 : 1) {}

    ImageShape shape() const override { return transform_.output(); }

    at::Tensor read(std::span<const std::byte> rows, const KeyedSamples& samples) const override {
        const at::Tensor images =
            empty_input(static_cast<std::int64_t>(samples.ids.size()), shape());
        const at::Tensor numbers = numbers_of(rows, samples.ids.size());
        const auto apply = [&](auto values) {
            transform_.apply(
                values, samples.ids, samples.key, PixelLayout::nhwc, values_of<float>(images));
        };
        if (has_bytes())
            apply(std::span<const std::uint8_t>(values_of<std::uint8_t>(numbers)));
        else
            apply(std::span<const float>(values_of<float>(numbers)));
        return images;
    }

    at::Tensor read_on(const DeviceStage& stage,
                       std::span<const std::byte> rows,
                       const KeyedSamples& samples) const override {
        const auto count = static_cast<std::int64_t>(samples.ids.size());
        at::Tensor stored =
            has_bytes() ? stage.copy(rows) : stage.upload(numbers_of(rows, samples.ids.size()));
        const c10::StreamGuard guard(stage.stream());
        if (has_bytes() && has_channels_last(field_))
            stored = as_images(stored.reshape(batch_extents(field_, count)), field_).contiguous();
        const at::Tensor images = empty_input(count, shape(), stage.device());
        const std::size_t scratch = transform_.scratch_values(samples.ids.size());
        const std::array rooms{stage.room(scratch), stage.room(scratch)};
        const at::Tensor draws = uploaded(stage, transform_.draw(samples.ids, samples.key));
        const at::Tensor mean = uploaded(stage, transform_.mean());
        const at::Tensor scale = uploaded(stage, transform_.scale());
        stage.transform(
            plan_launches(transform_,
                          {.bytes = has_bytes() ? stored.data_ptr<std::uint8_t>() : nullptr,
                           .floats = has_bytes() ? nullptr : stored.data_ptr<float>(),
                           .out = images.data_ptr<float>(),
                           .draws = static_cast<const StageDraw*>(draws.data_ptr()),
                           .mean = static_cast<const float*>(mean.data_ptr()),
                           .scale = static_cast<const float*>(scale.data_ptr()),
                           .layout = PixelLayout::nhwc,
                           .images = count},
                          {rooms[0].data_ptr<float>(), rooms[1].data_ptr<float>()}));
        return images;
    }

    at::Tensor move_masks(const at::Tensor& masks,
                          const KeyedSamples& samples,
                          std::int64_t outside) const override {
        const at::Tensor own = masks.contiguous();
        const at::Tensor moved =
            torch::empty({masks.size(0), shape().height, shape().width}, torch::kInt64);
        transform_.move_masks(values_of<std::int64_t>(own),
                              samples.ids,
                              samples.key,
                              outside,
                              values_of<std::int64_t>(moved));
        return moved;
    }

    std::vector<MixRow> mix(const DeviceStage* stage,
                            at::Tensor& values,
                            const KeyedSamples& samples,
                            std::span<const std::uint8_t> valid) const override {
        std::vector<MixRow> rows = transform_.mix_rows(samples.ids, samples.key, valid);
        if (rows.empty()) return rows;
        if (stage == nullptr) {
            transform_.mix(values_of<float>(values), rows, PixelLayout::nhwc);
            return rows;
        }
        const c10::StreamGuard guard(stage->stream());
        const at::Tensor unmixed = values.clone(), there = uploaded(*stage, rows);
        stage->mix({.in = unmixed.data_ptr<float>(),
                    .out = values.data_ptr<float>(),
                    .rows = static_cast<const MixRow*>(there.data_ptr()),
                    .channels = shape().channels,
                    .height = shape().height,
                    .width = shape().width,
                    .layout = PixelLayout::nhwc,
                    .images = static_cast<std::int64_t>(samples.ids.size())});
        return rows;
    }

  private:
    bool has_bytes() const { return field_.type == ElementType::u8; }

    // [n, C, H, W]: bytes as they are stored, or floats.
    at::Tensor numbers_of(std::span<const std::byte> rows, std::size_t samples) const {
        return as_images(stored_rows(rows, field_, samples), field_)
            .to(has_bytes() ? torch::kUInt8 : torch::kFloat32)
            .contiguous();
    }

    Field field_;
    ImageTransform transform_;
};

class MaskInput : public FieldInput {
  public:
    MaskInput(const Field& field, const FieldInput& image, std::int64_t outside)
        : stored_(make_raw_input(field, {})), image_(image), outside_(outside) {}

    ImageShape shape() const override { return {1, image_.shape().height, image_.shape().width}; }

    at::Tensor read(std::span<const std::byte> rows, const KeyedSamples& samples) const override {
        return image_.move_masks(stored_->read(rows, samples), samples, outside_);
    }

  private:
    std::unique_ptr<FieldInput> stored_;
    const FieldInput& image_;
    std::int64_t outside_;
};

// Errors: E248.
std::unique_ptr<FieldInput> make_image_input(const Field& field,
                                             const TransformPipeline& pipeline,
                                             const Field& statistics) {
    const bool is_asked = std::ranges::any_of(pipeline.ops(), [](const TransformOp& op) {
        return op.kind == TransformKind::normalise && op.statistics == Statistics::imagenet;
    });
    check(field.type == ElementType::u8 || is_real(field.type) || !is_asked,
          "E248",
          fmt::format("'{}' does not go with {}", pipeline.text(), field.name),
          fmt::format("ImageNet's statistics are of values 0 to 1, and these are {}",
                      element_name(field.type)),
          "drop imagenet: 'normalise' takes the data's own mean and deviation");
    return std::make_unique<ImageInput>(field, pipeline, statistics);
}

Error unmoved(const TransformPipeline& pipeline, const std::string& why) {
    return Error("E248",
                 fmt::format("'{}' would move images, but not their masks", pipeline.text()),
                 why,
                 "pack masks of whole numbers [H, W] of the images' size, or drop --transform");
}

}  // namespace

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
    if (field.name == "tokens") return std::make_unique<TokenInput>(field, pipeline);
    // Numbers that are only normalised are so in f64.
    const bool is_transformed = field.type == ElementType::u8 || pipeline != TransformPipeline();
    if (is_image(field) && is_transformed) return make_image_input(field, pipeline, statistics);
    return std::make_unique<NumberInput>(field, pipeline, statistics);
}

std::unique_ptr<FieldInput> make_raw_input(const Field& field, const TransformPipeline& pipeline) {
    if (!is_image(field))
        check_untransformed(
            pipeline, fmt::format("field '{}' holds none", field.name), "drop --transform");
    return std::make_unique<RawInput>(field);
}

void check_masks_follow(const TransformPipeline& pipeline,
                        const Field& masks,
                        const Field& images) {
    const ImageShape pixels = shape_of(images);
    check(!is_real(masks.type) && masks.shape.size() == 2, [&] {
        return unmoved(pipeline,
                       fmt::format("those are {} [{}], and whole numbers [H, W] can be moved",
                                   element_name(masks.type),
                                   fmt::join(masks.shape, ", ")));
    });
    check(masks.shape[0] == pixels.height && masks.shape[1] == pixels.width, [&] {
        return unmoved(pipeline,
                       fmt::format("'masks' are [{}], and '{}' {} x {}",
                                   fmt::join(masks.shape, ", "),
                                   images.name,
                                   pixels.height,
                                   pixels.width));
    });
}

std::unique_ptr<FieldInput> make_mask_input(const Field& field,
                                            const FieldInput& image,
                                            std::int64_t outside) {
    return std::make_unique<MaskInput>(field, image, outside);
}

}  // namespace lockstep
