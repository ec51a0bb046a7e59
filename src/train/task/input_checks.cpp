// SPDX-License-Identifier: Apache-2.0
// How inputs are normalised, whether that can be so, and whether test data are like training data.
//
// Tested: train/task/input_test.cpp.
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/core/split.hpp"

#include "task/input.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

/// One item of "pressure=101325/300,age=40/20".
struct GivenStatistics {
    std::string field;
    double mean = 0, deviation = 1;
};

std::vector<GivenStatistics> given_statistics(const std::string& text) {
    if (text == "auto" || text == "none" || text == "required" || brings_statistics(text))
        return {};
    std::vector<GivenStatistics> all;
    for (const std::string& item : split(text, ',')) {
        const std::size_t equals = item.find('='), slash = item.find('/', equals);
        const bool is_whole = equals != item.npos && slash != item.npos;
        const auto mean = parse_real(is_whole ? item.substr(equals + 1, slash - equals - 1) : "");
        const auto deviation = parse_real(is_whole ? item.substr(slash + 1) : "");
        check(mean && deviation && std::isfinite(*mean) && *deviation > 0,
              "E103",
              fmt::format("--normalise is '{}'", printable(text)),
              "it must be auto, none, required, dataset, FIELD=MEAN/DEVIATION for each field, or "
              "a file with mean and deviation",
              "for example --normalise features=101325/300");
        all.push_back({item.substr(0, equals), *mean, *deviation});
    }
    return all;
}

// Returns the way in which a field gets mean and deviation.
std::string normalising_advice(const Field& field, ManifestKind kind) {
    if (kind == ManifestKind::foreign)
        return fmt::format(
            "a file of others has no mean and deviation, which --normalise dataset finds by one "
            "pass, and --normalise {}=MEAN/DEVIATION gives",
            field.name);
    if (field.shape.size() == 1 && !statistics_axis(field))
        return fmt::format(
            "'lockstep data pack' finds no mean and deviation of {} columns. numpy scales it "
            "before, and test data by the same numbers: x = (x - mean) / std",
            grouped(static_cast<std::uint64_t>(field.shape[0])));
    return "it has no mean and deviation, which 'lockstep data pack' finds today: pack it again";
}

const Statistics* statistics_in(const TransformPipeline& pipeline) {
    const auto found =
        std::ranges::find(pipeline.ops(), TransformKind::normalise, &TransformOp::kind);
    return found == pipeline.ops().end() ? nullptr : &found->statistics;
}

std::string by_what(const Field& field) {
    if (field.mean.size() == 1) return "";
    if (field.shape.size() == 1) return " of each column";
    return field.shape.size() == 2 ? " of each feature" : " of each channel";
}

std::string described(const ModelShape& shape) {
    const auto text_of = [](const auto& one) {
        return one.dimensions == 4
                   ? fmt::format("{}x{}x{}x{}", one.channels, one.depth, one.height, one.width)
                   : fmt::format("{}x{}x{}", one.channels, one.height, one.width);
    };
    std::string text = text_of(shape);
    for (const InputShape& one : shape.further) text += " and " + text_of(one);
    return text;
}

// Those of `data pack --csv`.
std::string options_of(const Field& learned) {
    std::string options;
    for (const std::string& column : learned.columns)
        options += fmt::format(" --{} {}",
                               learned.name == "labels" ? "label" : "target",
                               shell_word(printable(column)));
    return options;
}

// A model knows columns by their places; names are compared where both have them.
void check_columns(const Field& test, const Field& data, const TrainSettings& settings) {
    const auto &there = test.columns, &here = data.columns;
    if (there.empty() || here.empty()) return;
    const std::string like = "--like " + shell_word(settings.data.string());
    const bool are_filled = !test.table.fills.empty() && !data.table.fills.empty();
    if (are_filled && test.table.fills != data.table.fills)
        once(Level::warn,
             "test data '{}' fill cells with their own means; 'lockstep data pack {}' fills them "
             "with the training data's",
             settings.test_data.string(),
             like);
    if (there == here) return;
    const auto first =
        static_cast<std::size_t>(std::ranges::mismatch(there, here).in1 - there.begin());
    throw other_data(
        settings.test_data.string(),
        fmt::format("column {} of '{}' is '{}', and in the training data '{}'; their order is: {}",
                    first + 1,
                    test.name,
                    first < there.size() ? printable(there[first]) : "",
                    first < here.size() ? printable(here[first]) : "",
                    listed(here)),
        is_learned(data.name)
            ? fmt::format("pack the table again with{}, in this order", options_of(data))
            : fmt::format("pack the table again with {}: columns are then found by their names",
                          like));
}

}  // namespace

Field normalised_as(Field field, const std::string& normalise) {
    if (normalise == "none") field.mean.clear(), field.std.clear();
    for (const GivenStatistics& given : given_statistics(normalise))
        if (given.field == field.name) field.mean = {given.mean}, field.std = {given.deviation};
    return field;
}

DatasetIndex with_used_statistics(const DatasetIndex& data, const std::string& normalise) {
    std::vector<Field> fields;
    for (const Field& field : data.fields())
        if (!is_learned(field.name)) fields.push_back(normalised_as(field, normalise));
    return data.with_statistics(fields);
}

std::string treatment(const Field& stored, const TrainSettings& settings, ManifestKind kind) {
    if (stored.name == "tokens") return "";
    const Field field = normalised_as(stored, settings.normalise);
    const auto pipeline = TransformPipeline::parse(settings.transform);
    const std::string divided = field.type == ElementType::u8 ? ", divided by 255" : "";
    const Statistics* const whose = is_image(field) ? statistics_in(pipeline) : nullptr;
    if (whose != nullptr && *whose == Statistics::imagenet)
        return divided + ", normalised by ImageNet's mean and deviation";
    if (settings.normalise == "none") return divided + ", not normalised, as --normalise none says";
    if (field.mean.empty())
        return fmt::format("{}, not normalised: {}", divided, normalising_advice(field, kind));
    if (field.mean != stored.mean || field.std != stored.std)
        return fmt::format("{}, normalised by the given mean {} and deviation {}",
                           divided,
                           field.mean[0],
                           field.std[0]);
    return fmt::format("{}, normalised by mean and deviation{}", divided, by_what(field));
}

std::string normalised_inputs_warning(const DatasetIndex& index, const TrainSettings& settings) {
    if (settings.task.kind != TaskKind::program) return "";
    const std::vector<GivenStatistics> given = given_statistics(settings.normalise);
    std::vector<std::string> names;
    const std::vector<GivenInput> inputs = given_inputs(index, settings);
    for (const GivenInput& input : std::span(inputs).subspan(1)) {
        const Field field = normalised_as(index.fields()[input.place], settings.normalise);
        const bool is_given = std::ranges::count(given, field.name, &GivenStatistics::field) > 0;
        if (input.is_number(index) && !is_given && !field.mean.empty()) names.push_back(field.name);
    }
    if (names.empty()) return "";
    return fmt::format(
        "inputs after the first are normalised, too: {0}; if the loss compares them, begin a new "
        "run with --normalise {1}{2}=0/1",
        fmt::join(names, ", "),
        given.empty() ? "" : settings.normalise + ",",
        fmt::join(names, "=0/1,"));
}

void check_normalises(const TrainSettings& settings,
                      const std::string& transform,
                      const DatasetIndex& index) {
    const std::vector<GivenInput> inputs = given_inputs(index, settings);
    std::vector<Field> numbers;  // what may be normalised
    std::vector<std::string> names;
    for (const GivenInput& input : inputs) {
        if (!input.is_number(index)) continue;
        numbers.push_back(normalised_as(index.fields()[input.place], settings.normalise));
        names.push_back(numbers.back().name);
    }
    for (const GivenStatistics& given : given_statistics(settings.normalise))
        check(std::ranges::find(names, given.field) != names.end(),
              "E103",
              fmt::format("--normalise names '{}', which is no input of numbers",
                          printable(given.field)),
              fmt::format("those are {}", fmt::join(names, ", ")),
              "give one of these");
    const bool is_asked = TransformPipeline::is_asked_to_normalise(transform);
    const bool asks_nothing = settings.normalise == "auto" || settings.normalise == "none";
    if (!is_asked && asks_nothing) return;
    const auto fail = [&](const std::string& field,
                          const std::string& why,
                          const std::string& fix) {
        return Error("E248", fmt::format("'normalise' would do nothing to '{}'", field), why, fix);
    };
    check(!numbers.empty(), [&] {
        return fail(index.fields()[inputs.front().place].name,
                    "it is given to the model as it is stored",
                    "drop it: tokens and the like are numbers of words");
    });
    const auto lacks = [](const Field& field) { return field.mean.empty(); };
    const auto lacking = std::ranges::find_if(numbers, lacks);
    const bool needs_all =
        settings.normalise == "required" || brings_statistics(settings.normalise);
    const bool lack_all = is_asked && std::ranges::all_of(numbers, lacks);
    check(!lack_all && (!needs_all || lacking == numbers.end()), [&] {
        if (settings.normalise == "none")
            return fail(lacking->name, "it is told to stay as stored, too", "drop one of the two");
        return fail(
            lacking->name,
            fmt::format("data set '{}' has no mean and deviation of it", index.place()),
            fmt::format("drop it; or: {}", normalising_advice(*lacking, index.manifest().kind)));
    });
}

void check_test_inputs(const DatasetIndex& test,
                       const DatasetIndex& data,
                       const TrainSettings& settings,
                       const Task& task) {
    const std::vector<std::size_t> tested = input_places(test, settings.inputs);
    const std::vector<std::size_t> learned = input_places(data, settings.inputs);
    for (std::size_t i = 0; i < tested.size(); ++i)
        check_columns(test.fields()[tested[i]], data.fields()[learned[i]], settings);
    for (const Field& there : test.fields())
        for (const Field& here : data.fields())
            if (there.name == here.name && is_learned(here.name))
                check_columns(there, here, settings);
    const std::string shape = described(evaluation_input(test, data, settings, task).shape());
    const std::string wanted = described(evaluation_input(data, data, settings, task).shape());
    const auto differ = [&](const char* form, const auto& there, const auto& here) {
        return other_data(settings.test_data.string(),
                          fmt::format(fmt::runtime(form), there, here));
    };
    check(shape == wanted,
          [&] { return differ("they are {}, the training data {}", shape, wanted); });
    for (std::size_t i = 0; i < tested.size(); ++i) {
        const Field &there = test.fields()[tested[i]], &here = data.fields()[learned[i]];
        if (here.name == "tokens")  // a model has no embedding for those beyond its vocabulary
            check(there.classes() <= here.classes(), [&] {
                return differ(
                    "they have {} classes, the training data {}", there.classes(), here.classes());
            });
        else  // statistics of u8 are of value / 255: they say nothing of other numbers
            check((there.type == ElementType::u8) == (here.type == ElementType::u8), [&] {
                return differ("they are {}, the training data {}",
                              element_name(there.type),
                              element_name(here.type));
            });
    }
}

}  // namespace lockstep
