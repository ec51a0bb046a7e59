// SPDX-License-Identifier: Apache-2.0
#include "task/input.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/split.hpp"
#include "lockstep/data/foreign.hpp"
#include "lockstep/data/manifest.hpp"
#include "lockstep/plan/model_table.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include <fmt/format.h>
#include <torch/types.h>

namespace lockstep {
namespace {

std::string first_input(const DatasetIndex& index) {
    for (const char* name : {"images", "features", "tokens"})
        if (std::ranges::count(index.fields(), name, &Field::name) > 0) return name;
    return "images";
}

constexpr std::size_t volume_dimensions = 4;

// The first ones as one: channels of a volume's slices.
std::vector<std::int64_t> with_three_dimensions(const std::vector<std::int64_t>& shape) {
    const auto kept = shape.end() - 2;
    std::vector<std::int64_t> joined{
        std::accumulate(shape.begin(), kept, std::int64_t{1}, std::multiplies<>())};
    joined.insert(joined.end(), kept, shape.end());
    return joined;
}

Error no_input(const DatasetIndex& index,
               const Field& field,
               const std::string& why,
               const std::string& fix) {
    return Error("E217",
                 fmt::format("field '{}' of data set '{}' is no input", field.name, index.place()),
                 why,
                 fix);
}

void check_dimensions(const DatasetIndex& index,
                      std::size_t place,
                      std::size_t most,
                      std::string_view models) {
    const Field& field = index.fields()[place];
    check(field.shape.size() <= most, [&] {
        return no_input(
            index,
            field,
            fmt::format("its samples are [{}], and {} {} dimensions at most",
                        fmt::join(field.shape, ", "),
                        models,
                        most),
            way_to_rewrite(index,
                           place,
                           fmt::format("x.reshape(len(x), {})",
                                       fmt::join(with_three_dimensions(field.shape), ", "))));
    });
}

// None of several inputs is mixed: partners would differ.
void check_several(const DatasetIndex& index,
                   const std::vector<GivenInput>& inputs,
                   const TransformPipeline& pipeline) {
    const auto fail = [&](const char* why, const char* fix) {
        return Error(
            "E248", fmt::format("'{}' does not go with several inputs", pipeline.text()), why, fix);
    };
    check(!pipeline.mixes_labels(),
          [&] { return fail("samples are mixed by one", "leave the mixing away"); });
    const bool has_images = std::ranges::any_of(
        inputs, [&](const GivenInput& one) { return is_image(index.fields()[one.place]); });
    check(has_images || pipeline == TransformPipeline(), [&] {
        return fail("images alone are transformed, and none of these is one", "drop --transform");
    });
}

// Those that have the name of an argument are in its place. Only a program that computes its own
// loss takes what is learned.
std::vector<std::string> possible_inputs(std::span<const std::string> wanted,
                                         const DatasetIndex& index,
                                         TaskKind task) {
    std::vector<std::string> fields;
    for (const Field& field : index.fields())
        if (task == TaskKind::program || !is_learned(field.name)) fields.push_back(field.name);
    for (std::size_t i = 0; i < std::min(wanted.size(), fields.size()); ++i) {
        const auto found = std::ranges::find(fields, wanted[i]);
        if (found != fields.end()) std::iter_swap(fields.begin() + std::ptrdiff_t(i), found);
    }
    return fields;
}

// What a model compares itself is not renumbered.
void check_same_classes(const DatasetIndex& index, const Field& field, const Field& trained) {
    const auto &here = field.class_names, &there = trained.class_names;
    check(here == there || here.empty() || there.empty(),
          "E217",
          fmt::format("'{}' of data set '{}' has other classes than in the training data",
                      field.name,
                      index.place()),
          "--task program gives their numbers to the model as they are",
          "pack both with the same classes in the same order");
}

InputShape shape_of(const Field& field, const FieldInput& input, bool is_raw) {
    const ImageShape out = input.shape();
    const bool is_whole = field.name == "tokens" || (is_raw && !is_real(field.type));
    const std::int64_t vocabulary = is_whole ? std::max<std::int64_t>(field.classes(), 1) : 0;
    const bool is_stored = is_raw || field.shape.size() == volume_dimensions;
    const int dimensions = is_stored ? static_cast<int>(field.shape.size()) : -1;
    return {out.channels, out.height, out.width, vocabulary, dimensions, input.depth()};
}

at::Tensor weights_of(const Batch& batch, const LeafRows& leaf) {
    if (batch.valid.empty()) return {};
    at::Tensor weights = torch::empty({static_cast<std::int64_t>(leaf.rows)});
    for (std::size_t row = 0; row < leaf.rows; ++row)
        weights.data_ptr<float>()[row] = batch.valid[leaf.first_row + row] != 0 ? 1.0F : 0.0F;
    return weights;
}

}  // namespace

bool is_learned(const std::string& field) {
    return field == "labels" || field == "targets" || field == "masks";
}

std::vector<std::size_t> input_places(const DatasetIndex& index, const std::string& names) {
    std::vector<std::size_t> places;
    for (const std::string& name : split(names.empty() ? first_input(index) : names, ',')) {
        places.push_back(index.field_position(name));
        check_dimensions(index, places.back(), volume_dimensions, "a model is given");
        check(std::ranges::count(places, places.back()) == 1,
              "E217",
              fmt::format("--inputs names '{}' twice", name),
              "a model is given each field once",
              "name it once");
    }
    return places;
}

bool GivenInput::is_number(const DatasetIndex& index) const {
    return !is_raw && index.fields()[place].name != "tokens";
}

std::vector<GivenInput> given_inputs(const DatasetIndex& index, const TrainSettings& settings) {
    std::vector<InputShape> wanted;
    if (source_of(settings.model.name) == ModelSource::program)
        wanted = program_inputs(settings.model.name);
    std::vector<GivenInput> inputs;
    for (const std::size_t place : input_places(index, settings.inputs)) {
        const Field& field = index.fields()[place];
        const std::size_t i = inputs.size();
        const bool are_tokens = field.name == "tokens";
        const bool is_looked_up =
            i < wanted.size() && wanted[i].vocabulary > 0 && !is_real(field.type);
        inputs.push_back(
            {place,
             settings.task.kind == TaskKind::program
                 ? is_learned(field.name) || are_tokens || is_looked_up
                 : (is_looked_up || are_tokens) && settings.task.kind != TaskKind::next_token});
    }
    return inputs;
}

// What is learned must not be given, but for tokens, whose last one is held back.
void check_no_targets(const DatasetIndex& index, const std::string& names) {
    for (const std::size_t place : input_places(index, names)) {
        const Field& field = index.fields()[place];
        check(!is_learned(field.name), [&] {
            return no_input(
                index,
                field,
                "it is what a model learns",
                "see --inputs, or pack or name the fields otherwise; a program that takes it and "
                "returns its own loss needs --task program");
        });
    }
}

void check_input_count(std::span<const std::string> wanted,
                       const DatasetIndex& index,
                       const TrainSettings& settings) {
    const std::vector<std::size_t> places = input_places(index, settings.inputs);
    const std::size_t given = places.size();
    if (wanted.empty()) return;
    for (std::size_t i = 0; i < given && wanted.size() == given; ++i) {
        const std::string& name = index.fields()[places[i]].name;
        check(name == wanted[i] || std::ranges::find(wanted, name) == wanted.end(),
              "E217",
              fmt::format("field '{}' would become argument '{}' of the model", name, wanted[i]),
              "it has an argument of the field's name",
              fmt::format("give --inputs {}", fmt::join(wanted, " --inputs ")));
    }
    if (wanted.size() == given) return;
    const std::vector<std::string> fields = possible_inputs(wanted, index, settings.task.kind);
    const std::string fix =
        wanted.size() == fields.size()
            ? fmt::format("give --inputs {}", fmt::join(fields, " --inputs "))
            : fmt::format(
                  "give --inputs FIELD for each of them, in this order; of data without "
                  "one, 'lockstep data pack' makes others");
    throw Error("E217",
                fmt::format("the model's forward() takes {} input(s), {}, and is given {}",
                            wanted.size(),
                            fmt::join(wanted, ", "),
                            given),
                fmt::format("the data have {}", fmt::join(fields, ", ")),
                fix);
}

std::vector<std::string> input_texts(const DatasetIndex& index, const TrainSettings& settings) {
    std::vector<std::string> texts;
    std::vector<Field> others = index.fields();
    for (const auto& [place, is_raw] : given_inputs(index, settings)) {
        const Field& field = index.fields()[place];
        std::erase_if(others, [&](const Field& other) { return other.name == field.name; });
        const std::string axes = axes_text(field);
        texts.push_back(
            fmt::format("{}: {}, {}{}",
                        field.name,
                        element_name(field.type),
                        axes.empty() ? fmt::format("[{}]", fmt::join(field.shape, ", ")) : axes,
                        is_raw ? "" : treatment(field, settings, index.manifest().kind)));
    }
    for (const Field& other : others)
        if (!other.name.ends_with("labels") && !is_learned(other.name))
            texts.push_back(other.name + ": not used, as --inputs does not name it");
    return texts;
}

void InputReader::move_masks(const TransformPipeline& pipeline, const TrainSettings& settings) {
    outside_ = std::max<std::int64_t>(settings.task.ignore_index, 0);
    const auto name = [&](const Source& source) { return index_.fields()[source.place].name; };
    const auto image = std::ranges::find_if(sources_, [&](const Source& source) {
        return is_image(index_.fields()[source.place]) && !is_learned(name(source));
    });
    if (!pipeline.moves_pixels() || image == sources_.end()) return;
    const Field& images = index_.fields()[image->place];
    mover_ = image->field.get();
    for (Source& source : sources_)
        if (name(source) == "masks") {
            const Field& masks = index_.fields()[source.place];
            check_masks_follow(pipeline, masks, images);
            source.field = make_mask_input(masks, *mover_, outside_);
        }
    const auto masks = std::ranges::find(index_.fields(), "masks", &Field::name);
    if (settings.task.kind == TaskKind::segmentation && masks != index_.fields().end())
        check_masks_follow(pipeline, *masks, images);
}

InputReader::InputReader(const DatasetIndex& index,
                         const TransformPipeline& pipeline,
                         const TrainSettings& settings,
                         const DatasetIndex& statistics,
                         const Task& task)
    : index_(index), task_(task), classes_(task.class_numbers(index)), seed_(settings.seed) {
    const std::vector<GivenInput> inputs = given_inputs(index, settings);
    const std::vector<std::size_t> learned = input_places(statistics, settings.inputs);
    const bool has_several = inputs.size() > 1;
    if (has_several) check_several(index, inputs, pipeline);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        const auto& [place, is_raw] = inputs[i];
        const Field& field = index.fields()[place];
        if (find_built_in(settings.model.name) != nullptr)
            check_dimensions(index, place, volume_dimensions - 1, "built-in models take");
        if (is_raw) check_same_classes(index, field, statistics.fields()[learned[i]]);
        const TransformPipeline used =
            !has_several || is_image(field) ? pipeline : TransformPipeline();
        sources_.push_back({place,
                            is_raw ? make_raw_input(field, used)
                                   : make_field_input(field,
                                                      used,
                                                      normalised_as(statistics.fields()[learned[i]],
                                                                    settings.normalise))});
    }
    move_masks(pipeline, settings);
    std::vector<InputShape> shapes;
    for (const auto& [place, is_raw] : inputs)
        shapes.push_back(shape_of(index.fields()[place], *sources_[shapes.size()].field, is_raw));
    const InputShape& first = shapes.front();
    shape_ = {first.channels,
              first.height,
              first.width,
              task.outputs(),
              first.vocabulary,
              {shapes.begin() + 1, shapes.end()},
              first.dimensions,
              first.depth};
}

std::span<const std::byte> InputReader::rows_of(const Batch& batch,
                                                std::size_t place,
                                                const LeafRows& rows) const {
    const std::size_t row_bytes = index_.fields()[place].bytes_per_sample();
    return batch.fields[place].subspan(rows.first_row * row_bytes, rows.rows * row_bytes);
}

KeyedSamples InputReader::keyed(const Batch& batch, const LeafRows& rows) const {
    return {std::span(batch.sample_ids).subspan(rows.first_row, rows.rows),
            {seed_, batch.position.epoch}};
}

NamedTensors InputReader::read_inputs(const Batch& batch, const LeafRows& leaf) const {
    NamedTensors inputs;
    for (const auto& [place, input] : sources_)
        inputs.push_back({index_.fields()[place].name,
                          input->read(rows_of(batch, place, leaf), keyed(batch, leaf))});
    return inputs;
}

// On the device of `stage`, where `inputs` are, or on the host if it is null.
LeafSamples InputReader::samples(NamedTensors inputs,
                                 const Batch& batch,
                                 const LeafRows& leaf,
                                 const DeviceStage* stage) const {
    std::span<const std::uint8_t> valid(batch.valid);
    if (!valid.empty()) valid = valid.subspan(leaf.first_row, leaf.rows);
    std::vector<MixRow> mixed;
    if (inputs.size() == 1)
        mixed = sources_[0].field->mix(stage, inputs[0].tensor, keyed(batch, leaf), valid);
    NamedTensors targets = task_.targets({batch, leaf, index_, classes_, mixed});
    if (mover_ != nullptr)
        for (NamedTensor& target : targets)
            if (target.name == "masks")
                target.tensor = mover_->move_masks(target.tensor, keyed(batch, leaf), outside_);
    at::Tensor weights = weights_of(batch, leaf);
    if (stage != nullptr) {
        targets = stage->upload(std::move(targets));
        if (weights.defined()) weights = stage->upload(weights);
    }
    return {.inputs = std::move(inputs), .targets = std::move(targets), .weights = weights};
}

LeafSamples InputReader::read(const Batch& batch, const LeafRows& leaf) const {
    return samples(read_inputs(batch, leaf), batch, leaf, nullptr);
}

std::vector<LeafSamples> InputReader::read_on(const DeviceStage& stage, const Batch& batch) const {
    const LeafRows all{.leaf = 0, .first_row = 0, .rows = batch.sample_ids.size()};
    if (all.rows == 0) return std::vector<LeafSamples>(batch.leaves.size());
    NamedTensors inputs;
    for (const auto& [place, input] : sources_)
        inputs.push_back({index_.fields()[place].name,
                          input->read_on(stage, rows_of(batch, place, all), keyed(batch, all))});
    std::vector<LeafSamples> leaves;
    for (const LeafRows& leaf : batch.leaves) {
        const auto first = static_cast<std::int64_t>(leaf.first_row);
        LeafSamples cut = LeafSamples{.inputs = inputs, .targets = {}, .weights = {}}.part(
            first, static_cast<std::int64_t>(leaf.rows));
        // Where a leaf begins must not tell which leaf is the rank's first.
        for (NamedTensor& input : cut.inputs) input.tensor = stage.aligned(input.tensor);
        leaves.push_back(samples(std::move(cut.inputs), batch, leaf, &stage));
    }
    return leaves;
}

InputReader evaluation_input(const DatasetIndex& index,
                             const DatasetIndex& trained,
                             const TrainSettings& settings,
                             const Task& task) {
    return {
        index, TransformPipeline::parse(settings.transform).evaluation(), settings, trained, task};
}

}  // namespace lockstep
