// SPDX-License-Identifier: Apache-2.0
#include "task/input.hpp"

#include "lockstep/core/error.hpp"

#include "support/made_up_program.hpp"
#include "support/unit.hpp"
#include "task/field_input.hpp"
#include "train/made_up_index.hpp"

namespace lockstep {
namespace {

Field input_field(const std::string& name,
                  ElementType type,
                  std::vector<std::int64_t> shape,
                  std::size_t classes = 0) {
    Field field{.name = name, .type = type, .shape = std::move(shape)};
    field.class_counts.assign(classes, 1);
    return field;
}

/// Images, an age, and words of so many kinds, from which a number is learned.
DatasetIndex people(std::size_t vocabulary = 5) {
    return test::made_up_index({input_field("images", ElementType::u8, {1, 4, 4}),
                                input_field("age", ElementType::f32, {}),
                                input_field("tokens", ElementType::u8, {4}, vocabulary),
                                input_field("targets", ElementType::f32, {})});
}

class Inputs : public testing::Test {
  protected:
    ModelShape shape(const std::string& inputs, const std::string& transform = "normalise") {
        settings_.inputs = inputs;
        return shape_of(data_, TransformPipeline::parse(transform));
    }
    ModelShape shape_of(const DatasetIndex& data, const TransformPipeline& pipeline = {}) const {
        return InputReader(data, pipeline, settings_, data, *task_).shape();
    }

    const DatasetIndex data_ = people();
    TrainSettings settings_;
    const std::unique_ptr<Task> task_ =
        make_task({.task = {.kind = TaskKind::regression}}, data_, {});
};

TEST_F(Inputs, MayBeOneNumberASampleAndAreTransformedIfOneIsAnImage) {
    const ModelShape two = shape("images,age");
    EXPECT_EQ(two.height, 4);
    ASSERT_EQ(two.further.size(), 1U);
    EXPECT_EQ(two.further[0].channels * two.further[0].height * two.further[0].width, 1);
    EXPECT_EQ(shape("age").channels, 1);
    EXPECT_EQ(shape("age,images", "resize 8x8").further[0].height, 8);
    const auto refused = [&](const std::string& inputs, const std::string& transform) {
        return caught_code([&] { shape(inputs, transform); });
    };
    EXPECT_EQ(refused("age,tokens", "resize 8x8"), "E248");
    EXPECT_EQ(refused("age", "resize 8x8"), "E248");
    EXPECT_EQ(refused("tokens", "resize 8x8"), "E248");
    EXPECT_EQ(refused("images,age", "mixup 0.2"), "E248");
}

TEST_F(Inputs, AreAllTokensUnlessTheNextOneIsLearned) {
    for (const char* model : {"own.so", "own.pt"}) {
        settings_.model.name = model;
        EXPECT_EQ(shape("tokens").width, 4) << model;
        EXPECT_EQ(shape("tokens").vocabulary, 5) << model;
        EXPECT_EQ(shape("age,tokens").further.at(0).width, 4) << model;
    }
    settings_.task.kind = TaskKind::next_token;
    EXPECT_EQ(shape("tokens").width, 3);
}

class InputsOfPrograms : public InFolder {};

TEST_F(InputsOfPrograms, AreWholeNumbersAsStoredWhereTheProgramHasI64) {
    using enum ElementType;
    test::MadeUpProgram program({3});
    program.input("source", 5, {2});
    program.parameter("fc", {3}, {1, 2, 3});
    program.output("x", {3});
    const fs::path path = folder_.file("net.pt2", test::zip_of(program.entries()));
    const auto field = [](const char* name, ElementType type) {
        Field one = input_field(name, type, {2});
        one.mean = one.std = {2, 2};
        return one;
    };
    const DatasetIndex data = test::made_up_index({field("source", i32), field("x", i32)});
    TrainSettings settings{.inputs = "x,source"};
    settings.model.name = path.string();
    const std::vector<std::int32_t> numbers{4, 6};
    const std::span bytes = std::as_bytes(std::span(numbers));
    const std::vector<std::span<const std::byte>> fields{bytes, bytes};
    const std::vector<std::uint64_t> ids{3};
    const auto task = make_program_task();
    for (const TaskKind kind : {TaskKind::program, TaskKind::classification}) {
        settings.task.kind = kind;
        const NamedTensors inputs =
            InputReader(data, {}, settings, data, *task)
                .read_inputs({.sample_ids = ids, .fields = fields}, {.leaf = 0, .rows = 1});
        EXPECT_TRUE(inputs[0].tensor.flatten().equal(torch::tensor({1.0F, 2.0F})));
        EXPECT_TRUE(inputs[1].tensor.equal(torch::tensor({{4, 6}}, torch::kLong)));
        const std::vector<std::string> texts = input_texts(data, settings);
        EXPECT_THAT(texts[0], HasSubstr("normalised by mean"));
        EXPECT_EQ(texts[1], "source: i32, [2]");
    }
}

/// Two samples of 4 x 4 pixels, whose masks have the images' numbers.
struct Painted {
    explicit Painted(const std::string& task_inputs = "")
        : data(test::made_up_index({input_field("images", ElementType::u8, {1, 4, 4}),
                                    input_field("masks", ElementType::u8, {4, 4}, 16)})) {
        settings.inputs = task_inputs;
        settings.task.kind = TaskKind::segmentation;
        for (int pixel = 0; pixel < 32; ++pixel) bytes.push_back(std::byte(pixel % 16));
        fields = {bytes, bytes};
        batch.fields = fields;
        batch.sample_ids = ids;
    }
    Painted(const Painted&) = delete;
    Painted& operator=(const Painted&) = delete;

    DatasetIndex data;
    TrainSettings settings;
    std::vector<std::byte> bytes;
    std::vector<std::span<const std::byte>> fields;
    std::vector<std::uint64_t> ids{5, 9};
    Batch batch;
    LeafRows leaf{.leaf = 0, .first_row = 0, .rows = 2};
};

TEST(Masks, MoveWithTheirImages) {
    Painted painted;
    painted.settings.task.ignore_index = 15;
    for (const char* text : {"flip", "crop 6x3 pad 2, flip", "flip, resize 8x4"}) {
        const auto pipeline = TransformPipeline::parse(text);
        const auto task = make_task(painted.settings, painted.data, pipeline);
        const InputReader reader(painted.data, pipeline, painted.settings, painted.data, *task);
        const LeafSamples samples = reader.read(painted.batch, painted.leaf);
        const at::Tensor& masks = samples.targets[0].tensor;
        const at::Tensor images = samples.inputs[0].tensor.squeeze(1).mul(255);
        ASSERT_EQ(masks.sizes(), images.sizes());
        EXPECT_EQ(task->output_shape()[1], masks.size(1));
        const at::Tensor inside = masks.ne(15);
        const bool is_exact = std::string(text).ends_with("flip");
        const at::Tensor differ = images.round().ne(masks).logical_and(inside);
        EXPECT_FALSE(is_exact && differ.any().item<bool>()) << text;
        // Rows grow by 4, whatever the resize made of columns.
        EXPECT_TRUE(masks.narrow(1, masks.size(1) - 1, 1).ge(8).all().item<bool>()) << text;
    }
}

TEST(Masks, MoveWithTheirImagesAsInputsOfAProgram) {
    Painted painted("masks,images");
    painted.settings.task.kind = TaskKind::program;
    const auto task = make_program_task();
    const auto pipeline = TransformPipeline::parse("crop 4 pad 3, flip");
    const InputReader reader(painted.data, pipeline, painted.settings, painted.data, *task);
    const NamedTensors inputs = reader.read_inputs(painted.batch, painted.leaf);
    EXPECT_EQ(inputs[0].tensor.scalar_type(), at::kLong);
    const at::Tensor images = inputs[1].tensor.squeeze(1).mul(255).round();
    EXPECT_TRUE(images.eq(inputs[0].tensor).all().item<bool>());
    EXPECT_EQ(reader.shape().dimensions, 2);
}

TEST(Masks, OfAnotherSizeThanTheirImagesStay) {
    const auto reader = [](const Field& masks, const std::string& text) {
        const Painted painted;
        const DatasetIndex data =
            test::made_up_index({input_field("images", ElementType::u8, {1, 4, 4}), masks});
        return caught_code([&] {
            const auto pipeline = TransformPipeline::parse(text);
            const auto task = make_task(painted.settings, data, pipeline);
            InputReader(data, pipeline, painted.settings, data, *task);
        });
    };
    const Field smaller = input_field("masks", ElementType::u8, {2, 2}, 4);
    EXPECT_EQ(reader(smaller, "flip"), "E248");
    EXPECT_EQ(reader(smaller, "blur 3"), "");
    EXPECT_EQ(reader(input_field("masks", ElementType::u8, {4, 4}, 4), "mixup 0.2"), "E248");
}

TEST_F(Inputs, MayBeVolumes) {
    const DatasetIndex data =
        test::made_up_index({input_field("features", ElementType::f32, {2, 3, 4, 5}),
                             input_field("targets", ElementType::f32, {})});
    EXPECT_EQ(caught_code([&] { shape_of(data); }), "E217") << "of a built-in model";
    settings_.model.name = "own.so";
    const ModelShape volume = shape_of(data);
    EXPECT_EQ(volume.dimensions, 4);
    EXPECT_EQ(volume.channels, 2);
    EXPECT_EQ(volume.depth, 3);
    EXPECT_EQ(volume.height, 4);
    EXPECT_EQ(volume.width, 5);
    const DatasetIndex deeper =
        test::made_up_index({input_field("features", ElementType::f32, {2, 3, 4, 5, 6})});
    EXPECT_EQ(caught_code([&] { input_places(deeper, ""); }), "E217");
}

Field with_statistics(Field field) {
    field.mean.assign(field.shape.empty() ? 1 : static_cast<std::size_t>(field.shape[0]), 0.5);
    field.std = field.mean;
    return field;
}

std::string treatment_of(const Field& field,
                         const std::string& transform = "normalise",
                         const std::string& normalise = "auto") {
    TrainSettings settings;
    settings.inputs = field.name;
    settings.transform = transform;
    settings.normalise = normalise;
    return input_texts(test::made_up_index({field}), settings).at(0);
}

TEST(InputTexts, SayWhatIsDone) {
    using enum ElementType;
    const Field image = input_field("images", u8, {3, 4, 4});
    EXPECT_EQ(treatment_of(with_statistics(image)),
              "images: u8, C 3, H 4, W 4, divided by 255, normalised by mean and deviation of each "
              "channel");
    EXPECT_EQ(treatment_of(image, "normalise imagenet"),
              "images: u8, C 3, H 4, W 4, divided by 255, normalised by ImageNet's mean and "
              "deviation");
    EXPECT_EQ(treatment_of(with_statistics(input_field("features", f32, {2}))),
              "features: f32, [2], normalised by mean and deviation of each column");
    Field series = input_field("features", f32, {20, 2});
    series.mean = series.std = {1, 2};
    EXPECT_EQ(treatment_of(series),
              "features: f32, [20, 2], normalised by mean and deviation of each feature");
    EXPECT_EQ(treatment_of(input_field("tokens", i32, {9}, 5)), "tokens: i32, [9]");
    EXPECT_EQ(treatment_of(series, "none", "none"),
              "features: f32, [20, 2], not normalised, as --normalise none says");
    EXPECT_EQ(treatment_of(series, "none", "features=101325/300"),
              "features: f32, [20, 2], normalised by the given mean 101325 and deviation 300");
}

TEST(InputTexts, SayWhatIsNotUsed) {
    EXPECT_THAT(input_texts(people(), {.inputs = "images"}),
                ElementsAre(StartsWith("images: u8"),
                            "age: not used, as --inputs does not name it",
                            "tokens: not used, as --inputs does not name it"));
}

TEST(InputTexts, SayWhatToDoWhereNothingIsNormalised) {
    using enum ElementType;
    EXPECT_THAT(treatment_of(input_field("features", u8, {5000})),
                HasSubstr("not normalised: 'lockstep data pack' finds no mean and deviation of "
                          "5,000 columns. numpy scales it before"));
    EXPECT_THAT(treatment_of(input_field("images", u8, {3, 4, 4})),
                HasSubstr("divided by 255, not normalised: it has no mean and deviation"));
}

TEST(Normalise, OfWhatALossComparesIsWarnedOf) {
    const auto field = [](const char* name) {
        return with_statistics(input_field(name, ElementType::f32, {2}));
    };
    const DatasetIndex data =
        test::made_up_index({field("positions"), field("energy"), field("forces")});
    TrainSettings settings{.inputs = "positions,energy,forces"};
    const auto warning = [&](const std::string& normalise) {
        settings.normalise = normalise;
        return normalised_inputs_warning(data, settings);
    };
    EXPECT_EQ(warning("auto"), "") << "not of other tasks";
    settings.task.kind = TaskKind::program;
    EXPECT_THAT(warning("auto"), has("too: energy, forces;", "--normalise energy=0/1,forces=0/1"));
    EXPECT_THAT(warning("energy=0/1"), HasSubstr("--normalise energy=0/1,forces=0/1"));
    EXPECT_EQ(warning("energy=0/1,forces=0/1"), "");
    EXPECT_EQ(warning("none"), "");
    settings.inputs = "positions";
    EXPECT_EQ(warning("auto"), "");
}

TEST(Normalise, IsRefusedWhereItWouldDoNothing) {
    using enum ElementType;
    const auto refused = [](const Field& field,
                            const std::string& transform,
                            const std::string& normalise = "auto") {
        TrainSettings settings;
        settings.inputs = field.name;
        settings.normalise = normalise;
        return caught_code(
            [&] { check_normalises(settings, transform, test::made_up_index({field})); });
    };
    const Field raw = input_field("images", i32, {1, 4, 4});
    for (const char* asked : {"normalise", "normalize", "flip, normalise"})
        EXPECT_EQ(refused(raw, asked), "E248") << asked;
    EXPECT_EQ(refused(input_field("tokens", u8, {4}, 5), "normalise"), "E248");
    for (const char* other : {"none", "flip", "normalise imagenet", "book"})
        EXPECT_EQ(refused(raw, other), "") << other;
    EXPECT_EQ(refused(with_statistics(raw), "normalise"), "");
    EXPECT_EQ(refused(with_statistics(raw), "normalise", "none"), "E248");
    EXPECT_EQ(refused(with_statistics(raw), "none", "none"), "");
    EXPECT_EQ(refused(raw, "none", "required"), "E248");
    EXPECT_EQ(refused(with_statistics(raw), "none", "required"), "");
    EXPECT_EQ(refused(raw, "none", "images=3/2"), "");
    EXPECT_EQ(refused(input_field("tokens", u8, {4}, 5), "none", "none"), "") << "asks for nothing";
    EXPECT_EQ(refused(input_field("tokens", u8, {4}, 5), "none", "required"), "E248");
    for (const char* wrong : {"images=3/0", "images=3", "masks=3/2", "images=nan/1"})
        EXPECT_EQ(refused(raw, "none", wrong), "E103") << wrong;
}

TEST_F(Inputs, OfTestDataAreTheSameColumns) {
    Field table = input_field("features", ElementType::f32, {3});
    table.columns = {"length", "mass", "temp"};
    const Field target = input_field("targets", ElementType::f32, {});
    settings_.inputs = "features";
    settings_.data = "my data";
    const auto refused = [&](const std::vector<std::string>& columns) {
        Field other = table;
        other.columns = columns;
        if (!columns.empty()) other.shape = {std::ssize(columns)};
        return caught_text([&] {
            check_test_inputs(test::made_up_index({other, target}),
                              test::made_up_index({table, target}),
                              settings_,
                              *task_);
        });
    };
    EXPECT_EQ(refused({"length", "mass", "temp"}), "");
    EXPECT_EQ(refused({}), "") << "nobody knows them";
    const std::string moved = refused({"length", "temp", "mass"});
    for (const char* wanted : {"E217",
                               "column 2 of 'features' is 'temp', and in the training data 'mass'",
                               "their order is: length, mass, temp",
                               "pack the table again with --like 'my data'"})
        EXPECT_THAT(moved, HasSubstr(wanted));
    EXPECT_THAT(refused({"length", "width", "temp"}),
                HasSubstr("column 2 of 'features' is 'width'"));
    EXPECT_THAT(refused({"length", "mass"}), HasSubstr("column 3 of 'features' is ''"))
        << "names say more than shapes";
}

TEST_F(Inputs, OfTestDataHaveNoTokensBeyondTheVocabulary) {
    settings_.inputs = "age,tokens";
    const auto refused = [&](const DatasetIndex& other) {
        return caught_code([&] { check_test_inputs(other, data_, settings_, *task_); });
    };
    EXPECT_EQ(refused(people(6)), "E217");
    EXPECT_EQ(refused(people(4)), "");
}

TEST_F(Inputs, AreAsManyAsTheModelTakes) {
    TrainSettings settings;
    const auto fix = [&](const std::vector<std::string>& wanted, const std::string& inputs) {
        settings.inputs = inputs;
        const auto error = caught([&] { check_input_count(wanted, data_, settings); });
        return error ? error->code() + ": " + error->fix() : "none";
    };
    EXPECT_EQ(fix({}, ""), "none");
    EXPECT_EQ(fix({"x"}, ""), "none");
    EXPECT_EQ(fix({"x", "y"}, "images,age"), "none");
    EXPECT_EQ(fix({"x", "y", "z"}, ""), "E217: give --inputs images --inputs age --inputs tokens");
    EXPECT_THAT(fix({"x"}, "images,age"), StartsWith("E217: give --inputs FIELD"));
    settings.task.kind = TaskKind::program;
    EXPECT_EQ(fix({"targets", "x", "age", "y"}, ""),
              "E217: give --inputs targets --inputs tokens --inputs age --inputs images")
        << "which may also be what is learned";
}

Field field_of(ElementType type, std::vector<std::int64_t> shape) {
    return {.name = "features", .type = type, .shape = std::move(shape)};
}

template <class T>
at::Tensor read(const FieldInput& input, const std::vector<T>& values, std::size_t samples = 1) {
    const std::vector<std::uint64_t> ids(samples);
    return input.read(std::as_bytes(std::span(values)), {ids, {}});
}

std::vector<float> flat(const at::Tensor& values) {
    const at::Tensor row = values.contiguous().flatten();
    return {row.data_ptr<float>(), row.data_ptr<float>() + row.numel()};
}

/// One sample, with statistics of its own.
template <class T>
std::vector<float> flat(const Field& field,
                        const std::vector<T>& values,
                        const TransformPipeline& pipeline = {}) {
    return flat(read(*make_field_input(field, pipeline, field), values));
}

TEST(FieldInput, NormalisesFeaturesEachByItsOwnStatisticsOrThoseOfAnotherDataSet) {
    Field field = field_of(ElementType::f32, {3});
    field.mean = {1, 10, 100};
    field.std = {2, 4, 0};  // the last is the same everywhere
    const auto input = make_field_input(field, {}, field);
    EXPECT_EQ(input->shape(), (ImageShape{3, 1, 1}));
    const at::Tensor values = read<float>(*input, {3, 6, 100, 2, 14, 101}, 2);
    EXPECT_EQ(values.sizes(), at::IntArrayRef({2, 3, 1, 1}));
    EXPECT_THAT(flat(values), ElementsAre(1, -1, 0, 0.5, 1, 1));
    Field own = field_of(ElementType::f32, {1}), trained = own;
    own.mean = {5}, own.std = {1};
    trained.mean = {1}, trained.std = {2};
    EXPECT_THAT(flat(read<float>(*make_field_input(own, {}, trained), {5})), ElementsAre(2));
}

TEST(FieldInput, SubtractsLargeOffsetsExactly) {
    Field field = field_of(ElementType::f64, {1});
    field.mean = {1e9};
    field.std = {0.5};
    EXPECT_THAT(flat<double>(field, {1e9 + 0.125}), ElementsAre(0.25));
    field.type = ElementType::i64;
    EXPECT_THAT(flat<std::int64_t>(field, {1'000'000'001}), ElementsAre(2));
}

TEST(FieldInput, TakesNumbersAsTheyAreWithoutStatistics) {
    EXPECT_THAT(flat<std::int32_t>(field_of(ElementType::i32, {2}), {-3, 70'000}),
                ElementsAre(-3, 70'000));
    EXPECT_THAT(flat<std::uint8_t>(field_of(ElementType::u8, {2}), {0, 255}), ElementsAre(0, 1));
}

TEST(FieldInput, PutsChannelsFirstAndInnermostInMemory) {
    Field field = field_of(ElementType::f32, {1, 2, 3});
    field.layout = "HWC";
    const auto input = make_field_input(field, {}, field);
    EXPECT_EQ(input->shape(), (ImageShape{3, 1, 2}));
    const at::Tensor values = read<float>(*input, {0, 1, 2, 10, 11, 12});
    EXPECT_THAT(flat(values), ElementsAre(0, 10, 1, 11, 2, 12));
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
        return caught_code([&] { make_field_input(field, pipeline, field); });
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
    const auto flip = TransformPipeline::parse("flip 1");
    EXPECT_THAT(flat<double>(field, {110, 1, 120, 2}, flip), ElementsAre(2, 1, 2, 1));
    field.type = ElementType::i32;
    EXPECT_THAT(flat<std::int32_t>(field, {110, 1, 120, 2}, flip), ElementsAre(2, 1, 2, 1));
}

TEST(FieldInput, GivesVolumesAsTheyAre) {
    Field field = field_of(ElementType::u8, {1, 2, 1, 2});
    field.mean = field.std = {0.5};
    const auto input = make_field_input(field, {}, field);
    EXPECT_EQ(input->shape(), (ImageShape{1, 1, 2}));
    EXPECT_EQ(input->depth(), 2);
    const at::Tensor values = read<std::uint8_t>(*input, {255, 0, 0, 255});
    EXPECT_EQ(values.sizes(), at::IntArrayRef({1, 1, 2, 1, 2}));
    EXPECT_THAT(flat(values), ElementsAre(1, -1, -1, 1));
}

}  // namespace
}  // namespace lockstep
