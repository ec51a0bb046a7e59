// SPDX-License-Identifier: Apache-2.0

#include "labels.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"

#include "widening.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {
namespace {

// Looks at all of them without a branch: masks have many, and nearly always all are sound.
template <class T>
bool are_all_below(std::span<const std::byte> rows, std::int64_t limit) {
    T least = 0, most = 0;
    for (std::size_t i = 0; i < rows.size() / sizeof(T); ++i) {
        const T value = element_at<T>(rows, i);
        least = std::min(least, value);
        most = std::max(most, value);
    }
    return least >= 0 && static_cast<std::int64_t>(most) < limit;
}

// No picture has fewer rows, and few have more channels.
constexpr std::int64_t few = 4;

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
        "numpy.searchsorted({1}, {0}){2}",
        name,
        list,
        field.shape.empty() || used.size() > most_in_code || used.back() > 255
            ? ""
            : fmt::format(" (a folder of masks: --mask-values {})", fmt::join(used, ",")));
}

bool is_void(const Field& field, const std::vector<std::size_t>& used) {
    constexpr std::size_t usual_void = 255;
    const std::size_t others = used.size() - 1;
    return !field.shape.empty() && others > 1 && used.back() == usual_void &&
           used[others - 1] == others - 1;
}

// What to do about it, where most likely something is to be done.
std::string advice(const Field& field, const std::vector<std::size_t>& used) {
    if (!field.class_names.empty()) return "";
    const std::size_t classes = field.class_counts.size(), first = used.front();
    if (is_void(field, used)) {
        return fmt::format(
            ". {0} looks like void: train --ignore-index {0} leaves it out of the loss and the "
            "metrics",
            used.back());
    }
    if (first > 0 && used.size() == classes - first)
        return fmt::format(
            ". If they are numbered from {0}, subtract it with numpy, from test "
            "data, too: {1} = {1} - {0}",
            first,
            field.shape.empty() ? "y" : "m");
    return 2 * used.size() > classes ? "" : ". If nobody will have them, " + numbering(field, used);
}

// Of two dimensions.
bool is_picture(const Field& field) {
    return field.layout == "HW" || field.name == "images";
}

}  // namespace

bool is_whole(ElementType type) {
    return type == ElementType::u8 || type == ElementType::i32 || type == ElementType::i64;
}

bool is_label_name(std::string_view name) {
    return name == "labels" || name.ends_with("_labels");
}

bool is_of_classes(const Field& field) {
    const std::size_t dimensions = field.shape.size();
    const bool is_named = (is_label_name(field.name) && dimensions == 0) ||
                          (field.name == "masks" && dimensions == 2) ||
                          (field.name == "tokens" && dimensions == 1);
    return is_named && is_whole(field.type);
}

std::int64_t label_at(ElementType type, std::span<const std::byte> rows, std::size_t element) {
    return with_type(
        type, [&]<class T>(T) { return static_cast<std::int64_t>(element_at<T>(rows, element)); });
}

std::string label_text(const Field& field, std::int64_t label) {
    if (label == Widening::no_class) return "label (no whole number)";
    if (field.shape.empty()) return fmt::format("label {}", label);
    return fmt::format("value {} of '{}'", label, field.name);
}

std::optional<BadLabel> first_label_beyond(const Field& field,
                                           std::span<const std::byte> rows,
                                           std::int64_t limit) {
    const bool is_sound =
        with_type(field.type, [&]<class T>(T) { return are_all_below<T>(rows, limit); });
    if (is_sound) return {};
    const std::size_t element_size = element_bytes(field.type);
    for (std::size_t i = 0; i < rows.size() / element_size; ++i) {
        const std::int64_t label = label_at(field.type, rows, i);
        if (label < 0 || label >= limit) return BadLabel{i, label};
    }
    return {};
}

std::optional<BadLabel> first_bad_label(const Field& field, std::span<const std::byte> rows) {
    if (field.classes() == 0 || !is_whole(field.type)) return {};
    return first_label_beyond(field, rows, field.classes());
}

void count_labels(const Field& field,
                  std::span<const std::byte> rows,
                  std::vector<std::uint64_t>& counts) {
    with_type(field.type, [&]<class T>(T) {
        for (std::size_t i = 0; i < rows.size() / sizeof(T); ++i) {
            const auto label = static_cast<std::size_t>(element_at<T>(rows, i));
            if (label >= counts.size()) counts.resize(label + 1);
            ++counts[label];
        }
    });
}

bool has_channels_last(const Field& field) {
    return field.layout == "HWC" && field.shape.size() == 3;
}

std::string axes_text(const Field& field) {
    const auto& shape = field.shape;
    if (shape.size() == 2 && is_picture(field))
        return fmt::format("H {}, W {}", shape[0], shape[1]);
    if (shape.size() != 3) return "";
    if (!has_channels_last(field))
        return fmt::format("C {}, H {}, W {}", shape[0], shape[1], shape[2]);
    return fmt::format("C {}, H {}, W {} (stored H, W, C)", shape[2], shape[0], shape[1]);
}

std::optional<std::size_t> statistics_axis(const Field& field) {
    constexpr std::int64_t most_features = 4096;
    const std::size_t dimensions = field.shape.size();
    if (dimensions == 0) return std::nullopt;
    if (has_channels_last(field)) return dimensions - 1;
    if (dimensions == 2 && (is_picture(field) || field.type == ElementType::u8)) return {};
    const bool is_volume = dimensions == 4 && field.shape[0] <= most_features;
    if (field.layout == "CHW" || is_volume) return 0;
    const bool has_features = dimensions < 3 && field.shape.back() <= most_features;
    return has_features ? std::optional(dimensions - 1) : std::nullopt;
}

bool may_have_channels_last(const std::vector<std::int64_t>& shape) {
    const std::int64_t first = shape[0], middle = shape[1], last = shape[2];
    const bool is_small = last <= few && first > few;
    const bool is_smaller = last <= std::min(first, middle) / 2;
    return is_small || is_smaller || (first == middle && last != middle);
}

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
