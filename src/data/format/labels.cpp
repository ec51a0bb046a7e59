// SPDX-License-Identifier: Apache-2.0
#include "labels.hpp"

#include "widening.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace lockstep {
namespace {

template <class T>
T value_at(std::span<const std::byte> rows, std::size_t element) {
    T value{};
    std::memcpy(&value, rows.data() + element * sizeof value, sizeof value);
    return value;
}

// Calls `action` with an element of the type, for its type.
template <class Action>
auto with_type(ElementType type, Action&& action) {
    switch (type) {
        case ElementType::u8:
            return action(std::uint8_t{});
        case ElementType::i32:
            return action(std::int32_t{});
        default:
            return action(std::int64_t{});
    }
}

// Looks at all of them without a branch: masks have many, and nearly always all are sound.
template <class T>
bool are_all_below(std::span<const std::byte> rows, std::int64_t limit) {
    T least = 0, most = 0;
    for (std::size_t i = 0; i < rows.size() / sizeof(T); ++i) {
        const T value = value_at<T>(rows, i);
        least = std::min(least, value);
        most = std::max(most, value);
    }
    return least >= 0 && most < limit;
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
        type, [&]<class T>(T) { return static_cast<std::int64_t>(value_at<T>(rows, element)); });
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
            const auto label = static_cast<std::size_t>(value_at<T>(rows, i));
            if (label >= counts.size()) counts.resize(label + 1);
            ++counts[label];
        }
    });
}

}  // namespace lockstep
