// SPDX-License-Identifier: Apache-2.0
// Class numbers, stored as any type of whole numbers.
#pragma once

#include "lockstep/data/manifest.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Element number `i` of `bytes`, wherever they lie.
template <class Value>
Value element_at(std::span<const std::byte> bytes, std::size_t i) {
    Value value{};
    std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
    return value;
}

/// Calls `action` with an element of `type`, for its C++ type.
template <class Action>
auto with_type(ElementType type, Action&& action) {
    using enum ElementType;
    if (type == u8) return action(std::uint8_t{});
    if (type == i32) return action(std::int32_t{});
    if (type == f32) return action(float{});
    if (type == f64) return action(double{});
    return action(std::int64_t{});
}

/// u8, i32 or i64.
bool is_whole(ElementType type);

/// Returns true if a field of that name has labels: `labels` and `..._labels`.
bool is_label_name(std::string_view name);

/// Returns true if each element of the field is a class number, by the field's name: one label for
/// a sample, `masks` [H, W] one per pixel, `tokens` [T] one per place. All are whole numbers.
bool is_of_classes(const Field& field);

/// Returns the class of element number `element` in rows of `type`, u8, i32 or i64.
std::int64_t label_at(ElementType type, std::span<const std::byte> rows, std::size_t element);

/// Returns a class in the form of errors: "label 5", or "value 5 of 'masks'".
std::string label_text(const Field& field, std::int64_t label);

/// A label that is no class of its field.
struct BadLabel {
    std::size_t element = 0;
    std::int64_t label = 0;
};

/// Returns the first element of `rows` below 0, or of `limit` or more. Whole numbers only.
std::optional<BadLabel> first_label_beyond(const Field& field,
                                           std::span<const std::byte> rows,
                                           std::int64_t limit);

/// Returns the first element of `rows` that is no class; nothing if `field` has no classes.
std::optional<BadLabel> first_bad_label(const Field& field, std::span<const std::byte> rows);

/// Adds each class in `rows` to `counts`, which grows as needed. No element is below 0.
void count_labels(const Field& field,
                  std::span<const std::byte> rows,
                  std::vector<std::uint64_t>& counts);

}  // namespace lockstep
