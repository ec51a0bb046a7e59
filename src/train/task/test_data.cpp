// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/shell_word.hpp"

#include "task/input.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {
namespace {

Error does_not_fit(const TrainSettings& settings,
                   const std::string& why,
                   const std::string& fix = "pack both from one source") {
    return Error(
        "E217",
        fmt::format("test data '{}' do not fit the training data", settings.test_data.string()),
        why,
        fix);
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

// Statistics of u8 are of value / 255: they say nothing of other numbers.
void check_units(const Field& test, const Field& data, const TrainSettings& settings) {
    check((test.type == ElementType::u8) == (data.type == ElementType::u8), [&] {
        return does_not_fit(settings,
                            fmt::format("they are {}, the training data {}",
                                        element_name(test.type),
                                        element_name(data.type)));
    });
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
    throw does_not_fit(
        settings,
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

// A model has no embedding for tokens beyond its vocabulary.
void check_vocabulary(const Field& test, const Field& data, const TrainSettings& settings) {
    check(test.classes() <= data.classes(), [&] {
        return does_not_fit(
            settings,
            fmt::format(
                "they have {} classes, the training data {}", test.classes(), data.classes()));
    });
}

}  // namespace

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
    check(shape == wanted, [&] {
        return does_not_fit(settings,
                            fmt::format("they are {}, the training data {}", shape, wanted));
    });
    for (std::size_t i = 0; i < tested.size(); ++i) {
        const Field &there = test.fields()[tested[i]], &here = data.fields()[learned[i]];
        const auto check_field = here.name == "tokens" ? check_vocabulary : check_units;
        check_field(there, here, settings);
    }
}

}  // namespace lockstep
