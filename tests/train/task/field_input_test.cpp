// SPDX-License-Identifier: Apache-2.0
#include "task/field_input.hpp"

#include "support/caught.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

Field field_of(ElementType type, std::vector<std::int64_t> shape) {
    return {.name = "features", .type = type, .shape = std::move(shape)};
}

template <class T>
at::Tensor read(const FieldInput& input, const std::vector<T>& values, std::size_t samples) {
    const std::vector<std::uint64_t> ids(samples);
    return input.read(std::as_bytes(std::span(values)), {ids, {}});
}

std::vector<float> flat(const at::Tensor& values) {
    const at::Tensor row = values.contiguous().flatten();
    return {row.data_ptr<float>(), row.data_ptr<float>() + row.numel()};
}

TEST(FieldInput, NormalisesFeaturesEachByItsOwnStatistics) {
    Field field = field_of(ElementType::f32, {3});
    field.mean = {1, 10, 100};
    field.std = {2, 4, 0};  // the last is the same everywhere
    const auto input = make_field_input(field, {}, field);
    EXPECT_EQ(input->shape(), (ImageShape{3, 1, 1}));
    const at::Tensor values = read<float>(*input, {3, 6, 100, 2, 14, 101}, 2);
    EXPECT_EQ(values.sizes().vec(), (std::vector<std::int64_t>{2, 3, 1, 1}));
    EXPECT_EQ(flat(values), (std::vector<float>{1, -1, 0, 0.5, 1, 1}));
}

TEST(FieldInput, SubtractsLargeOffsetsExactly) {
    Field field = field_of(ElementType::f64, {1});
    field.mean = {1e9};
    field.std = {0.5};
    EXPECT_EQ(flat(read<double>(*make_field_input(field, {}, field), {1e9 + 0.125}, 1)),
              (std::vector<float>{0.25}));
    field.type = ElementType::i64;
    EXPECT_EQ(flat(read<std::int64_t>(*make_field_input(field, {}, field), {1'000'000'001}, 1)),
              (std::vector<float>{2}));
}

TEST(FieldInput, TakesNumbersAsTheyAreWithoutStatistics) {
    const Field whole = field_of(ElementType::i32, {2});
    EXPECT_EQ(flat(read<std::int32_t>(*make_field_input(whole, {}, whole), {-3, 70'000}, 1)),
              (std::vector<float>{-3, 70'000}));
    const Field bytes = field_of(ElementType::u8, {2});
    EXPECT_EQ(flat(read<std::uint8_t>(*make_field_input(bytes, {}, bytes), {0, 255}, 1)),
              (std::vector<float>{0, 1}));
}

TEST(FieldInput, UsesTheStatisticsOfAnotherDataSet) {
    Field own = field_of(ElementType::f32, {1}), trained = own;
    own.mean = {5}, own.std = {1};
    trained.mean = {1}, trained.std = {2};
    EXPECT_EQ(flat(read<float>(*make_field_input(own, {}, trained), {5}, 1)),
              (std::vector<float>{2}));
}

TEST(FieldInput, PutsChannelsFirstAndInnermostInMemory) {
    Field field = field_of(ElementType::f32, {1, 2, 3});
    field.layout = "HWC";
    const auto input = make_field_input(field, {}, field);
    EXPECT_EQ(input->shape(), (ImageShape{3, 1, 2}));
    const at::Tensor values = read<float>(*input, {0, 1, 2, 10, 11, 12}, 1);
    EXPECT_EQ(flat(values), (std::vector<float>{0, 10, 1, 11, 2, 12}));
    EXPECT_TRUE(values.is_contiguous(at::MemoryFormat::ChannelsLast));
}

// Kernels may choose by alignment, so that bits would depend on where a leaf lies in its batch.
TEST(FieldInput, LiesInMemoryOfItsOwn) {
    const Field field = field_of(ElementType::f32, {1});
    const std::vector<float> stored = {1, 2};
    const at::Tensor values = read(*make_field_input(field, {}, field), stored, 2);
    EXPECT_NE(values.data_ptr<float>(), stored.data());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(values.data_ptr()) % 64, 0U);
}

TEST(FieldInput, TransformsOnlyImages) {
    const TransformPipeline flip = TransformPipeline::parse("flip");
    Field named = field_of(ElementType::i32, {1, 4, 4}), laid_out = named;
    named.name = "images";
    laid_out.layout = "HWC";
    for (const Field& image : {field_of(ElementType::u8, {1, 4, 4}), named, laid_out})
        EXPECT_NO_THROW(make_field_input(image, flip, image));
    const auto code = [](const Field& field, const TransformPipeline& pipeline) {
        return test::caught_code([&] { make_field_input(field, pipeline, field); });
    };
    EXPECT_EQ(code(field_of(ElementType::f32, {1, 4, 4}), flip), "E248");
    EXPECT_EQ(code(field_of(ElementType::u8, {16}), flip), "E248");
    Field wide = named;
    wide.shape = {3, 4, 4};
    const auto imagenet = TransformPipeline::parse("normalise imagenet");
    EXPECT_EQ(code(wide, imagenet), "E248") << "whole numbers are not from 0 to 1";
}

TEST(FieldInput, TransformsNumbersInTheirUnit) {
    Field field = field_of(ElementType::f64, {1, 2, 2});
    field.layout = "HWC";
    field.mean = {100, 0};
    field.std = {10, 0};
    const auto input = make_field_input(field, TransformPipeline::parse("flip 1"), field);
    const at::Tensor values = read<double>(*input, {110, 1, 120, 2}, 1);
    EXPECT_EQ(flat(values), (std::vector<float>{2, 1, 2, 1}));
    field.type = ElementType::i32;
    const auto whole = make_field_input(field, TransformPipeline::parse("flip 1"), field);
    EXPECT_EQ(flat(read<std::int32_t>(*whole, {110, 1, 120, 2}, 1)), flat(values));
}

TEST(FieldInput, GivesVolumesAsTheyAre) {
    Field field = field_of(ElementType::u8, {1, 2, 1, 2});
    field.mean = field.std = {0.5};
    const auto input = make_field_input(field, {}, field);
    EXPECT_EQ(input->shape(), (ImageShape{1, 1, 2}));
    EXPECT_EQ(input->depth(), 2);
    const at::Tensor values = read<std::uint8_t>(*input, {255, 0, 0, 255}, 1);
    EXPECT_EQ(values.sizes().vec(), (std::vector<std::int64_t>{1, 1, 2, 1, 2}));
    EXPECT_EQ(flat(values), (std::vector<float>{1, -1, -1, 1}));
}

}  // namespace
}  // namespace lockstep
