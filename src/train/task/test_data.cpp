// SPDX-License-Identifier: Apache-2.0
#include "task/test_data.hpp"

#include "lockstep/core/error.hpp"

#include "task/input.hpp"

#include <fmt/format.h>

namespace lockstep {
namespace {

Error does_not_fit(const TrainSettings& settings, const std::string& why) {
    return Error(
        "E217",
        fmt::format("test data '{}' do not fit the training data", settings.test_data.string()),
        why,
        "pack both from one source");
}

std::string described(const ModelShape& shape) {
    std::string text = fmt::format("{}x{}x{}", shape.channels, shape.height, shape.width);
    for (const InputShape& one : shape.further)
        text += fmt::format(" and {}x{}x{}", one.channels, one.height, one.width);
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
    const std::string shape = described(evaluation_input(test, data, settings, task).shape());
    const std::string wanted = described(evaluation_input(data, data, settings, task).shape());
    check(shape == wanted, [&] {
        return does_not_fit(settings,
                            fmt::format("they are {}, the training data {}", shape, wanted));
    });
    const std::vector<std::size_t> tested = input_places(test, settings.inputs);
    const std::vector<std::size_t> learned = input_places(data, settings.inputs);
    for (std::size_t i = 0; i < tested.size(); ++i) {
        const Field &there = test.fields()[tested[i]], &here = data.fields()[learned[i]];
        const auto check_field = here.name == "tokens" ? check_vocabulary : check_units;
        check_field(there, here, settings);
    }
}

void check_test_data(const DatasetIndex& test,
                     const DatasetIndex& data,
                     const TrainSettings& settings,
                     const Task& task) {
    check_test_inputs(test, data, settings, task);
    task.check_test_data(test);
}

}  // namespace lockstep
