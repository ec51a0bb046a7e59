// SPDX-License-Identifier: Apache-2.0
// Class numbers, as whatever whole numbers they are stored.
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
    switch (type) {
        case ElementType::u8:
            return action(std::uint8_t{});
        case ElementType::i32:
            return action(std::int32_t{});
        case ElementType::f32:
            return action(float{});
        case ElementType::f64:
            return action(double{});
        case ElementType::i64:
            break;
    }
    return action(std::int64_t{});
}

/// u8, i32 or i64.
bool is_whole(ElementType type);

/// Whether a field of that name has labels: `labels` and `..._labels`.
bool is_label_name(std::string_view name);

/// Whether each element of such a field is the number of a class by the field's name: one label for
/// a sample, `masks` [H, W] one for each pixel, `tokens` [T] one for each place. All whole numbers.
bool is_of_classes(const Field& field);

/// The class that element number `element` of rows of `type`, u8, i32 or i64, has.
std::int64_t label_at(ElementType type, std::span<const std::byte> rows, std::size_t element);

/// A class, as errors call it: "label 5", or "value 5 of 'masks'".
std::string label_text(const Field& field, std::int64_t label);

/// A label that is no class of its field.
struct BadLabel {
    std::size_t element = 0;
    std::int64_t label = 0;
};

/// The first element of `rows` below 0, or of `limit` or more. Whole numbers only.
std::optional<BadLabel> first_label_beyond(const Field& field,
                                           std::span<const std::byte> rows,
                                           std::int64_t limit);

/// The first element of `rows` that is no class; nothing where `field` has no classes.
std::optional<BadLabel> first_bad_label(const Field& field, std::span<const std::byte> rows);

/// Adds each class in `rows` to `counts`, which grows as needed. No element is below 0.
void count_labels(const Field& field,
                  std::span<const std::byte> rows,
                  std::vector<std::uint64_t>& counts);

}  // namespace lockstep
