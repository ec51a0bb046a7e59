// SPDX-License-Identifier: Apache-2.0
#include "task/test_data.hpp"

#include "lockstep/core/error.hpp"

#include "task/input.hpp"

#include <algorithm>

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
    return fmt::format(
        "{}x{}x{} with {} classes", shape.channels, shape.height, shape.width, shape.classes);
}

const std::vector<std::string>& class_names(const DatasetIndex& index) {
    return index.fields()[index.field_position("labels")].class_names;
}

// A test set that lacks a class numbers the others in another way. Sets without names are trusted.
void check_class_names(const DatasetIndex& test,
                       const DatasetIndex& data,
                       const TrainSettings& settings) {
    const auto &tested = class_names(test), &trained = class_names(data);
    for (std::size_t i = 0; i < std::min(tested.size(), trained.size()); ++i)
        check(tested[i] == trained[i], [&] {
            return does_not_fit(
                settings,
                fmt::format(
                    "class {} is '{}' there, '{}' in the training data", i, tested[i], trained[i]));
        });
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

}  // namespace

void check_test_data(const DatasetIndex& test,
                     const DatasetIndex& data,
                     const TrainSettings& settings) {
    const ModelShape shape = evaluation_input(test, data, settings).shape();
    const ModelShape wanted = evaluation_input(data, data, settings).shape();
    const bool fits = shape.channels == wanted.channels && shape.height == wanted.height &&
                      shape.width == wanted.width && shape.classes <= wanted.classes;
    check(fits, [&] {
        return does_not_fit(
            settings,
            fmt::format("they are {}, the training data {}", described(shape), described(wanted)));
    });
    check_units(input_field(test), input_field(data), settings);
    check_class_names(test, data, settings);
}

}  // namespace lockstep
