// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/class_use.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::size_t most_named = 10;
constexpr std::size_t most_in_code = 20;

std::vector<std::size_t> classes_that(const Field& field, bool occur) {
    std::vector<std::size_t> found;
    for (std::size_t number = 0; number < field.class_counts.size(); ++number)
        if ((field.class_counts[number] > 0) == occur) found.push_back(number);
    return found;
}

std::string class_text(const Field& field, std::size_t number) {
    if (number >= field.class_names.size()) return fmt::format("{}", number);
    const std::string name = printable(field.class_names[number]);
    return name == fmt::format("{}", number) ? name : fmt::format("{} ({})", number, name);
}

// "0, 127 and 255".
std::string list_of(const Field& field, const std::vector<std::size_t>& numbers) {
    std::string text;
    const std::size_t named = std::min(numbers.size(), most_named);
    for (std::size_t i = 0; i < named; ++i) {
        const bool is_last = i > 0 && i + 1 == numbers.size();
        text += (i == 0 ? "" : is_last ? " and " : ", ") + class_text(field, numbers[i]);
    }
    if (numbers.size() > named)
        text += fmt::format(" and {} more", grouped(numbers.size() - named));
    return text;
}

std::string numbering(const Field& field, const std::vector<std::size_t>& used) {
    const char* const name = field.shape.empty() ? "y" : "m";
    const std::string list = used.size() <= most_in_code
                                 ? fmt::format("[{}]", fmt::join(used, ", "))
                                 : fmt::format("numpy.unique({})", name);
    return fmt::format(
        "number them from 0, and those of test data by the same list: {0} = "
        "numpy.searchsorted({1}, {0})",
        name,
        list);
}

bool is_void(const Field& field, const std::vector<std::size_t>& used) {
    constexpr std::size_t usual_void = 255;
    const std::size_t others = used.size() - 1;
    return !field.shape.empty() && others > 1 && used.back() == usual_void &&
           used[others - 1] == others - 1;
}

// Returns advice, if there most likely is something to do.
std::string advice(const Field& field, const std::vector<std::size_t>& used) {
    if (!field.class_names.empty()) return "";
    const std::size_t classes = field.class_counts.size(), first = used.front();
    if (is_void(field, used)) {
        const std::size_t others = used.size() - 1;
        std::string weights;
        for (std::size_t i = 0; i < others; ++i) weights += "1,";
        return fmt::format(
            ". {0} looks like void, but is learned as a class: there is no ignore "
            "index yet. m[m == {0}] = {1} of numpy makes it class {1}, and then "
            "--class-weights {2}0 leaves it out of the loss",
            used.back(),
            others,
            weights);
    }
    if (first > 0 && used.size() == classes - first)
        return fmt::format(
            ". If they are numbered from {0}, subtract it with numpy, from test "
            "data, too: {1} = {1} - {0}",
            first,
            field.shape.empty() ? "y" : "m");
    return 2 * used.size() > classes ? "" : ". If nobody will have them, " + numbering(field, used);
}

}  // namespace

std::string unused_classes_text(const Field& field) {
    const std::vector<std::size_t> used = classes_that(field, true);
    const std::vector<std::size_t> unused = classes_that(field, false);
    if (unused.empty() || used.empty() || field.name == "tokens") return "";
    return fmt::format("{}: {} of {} classes {} not occur: {}{}{}",
                       field.name,
                       grouped(unused.size()),
                       grouped(field.class_counts.size()),
                       unused.size() == 1 ? "does" : "do",
                       unused.size() <= used.size() ? list_of(field, unused)
                                                    : fmt::format("only {}", list_of(field, used)),
                       unused.size() <= used.size() ? ""
                       : used.size() == 1           ? " does"
                                                    : " do",
                       advice(field, used));
}

void check_class_numbers(const Field& field) {
    constexpr std::size_t many = 10'000, least_share = 100;
    const std::size_t classes = field.class_counts.size();
    if (classes <= many || field.name == "tokens") return;
    const std::vector<std::size_t> used = classes_that(field, true);
    check(used.size() * least_share >= classes, [&] {
        return Error(
            "E210",
            fmt::format("'{}' has {} classes, of which {} occur",
                        field.name,
                        grouped(classes),
                        grouped(used.size())),
            fmt::format("a model has weights for every number from 0 to the largest class, {}",
                        grouped(classes - 1)),
            numbering(field, used));
    });
}

}  // namespace lockstep
