// SPDX-License-Identifier: Apache-2.0
// Tested: train/task/input_test.cpp.
#include "task/normalise.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/split.hpp"
#include "lockstep/data/transform.hpp"

#include "task/field_input.hpp"
#include "task/input.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

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
        check(mean && deviation && std::isfinite(*mean) && *deviation > 0, [&] {
            return Error(
                "E103",
                fmt::format("--normalise is '{}'", printable(text)),
                "it must be auto, none, required, dataset, FIELD=MEAN/DEVIATION for each field, or "
                "a file with mean and deviation",
                "for example --normalise features=101325/300");
        });
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
        check(std::ranges::find(names, given.field) != names.end(), [&] {
            return Error("E103",
                         fmt::format("--normalise names '{}', which is no input of numbers",
                                     printable(given.field)),
                         fmt::format("those are {}", fmt::join(names, ", ")),
                         "give one of these");
        });
    const bool is_asked = TransformPipeline::is_asked_to_normalise(transform);
    if (!is_asked && settings.normalise == "auto") return;
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

}  // namespace lockstep
