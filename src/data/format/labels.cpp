// SPDX-License-Identifier: Apache-2.0
#include "labels.hpp"

#include <cstring>

namespace lockstep {
namespace {

template <class T>
T value_at(std::span<const std::byte> rows, std::size_t row) {
    T value{};
    std::memcpy(&value, rows.data() + row * sizeof value, sizeof value);
    return value;
}

bool is_whole(ElementType type) {
    return type == ElementType::u8 || type == ElementType::i32 || type == ElementType::i64;
}

}  // namespace

std::int64_t label_at(ElementType type, std::span<const std::byte> rows, std::size_t row) {
    switch (type) {
        case ElementType::u8:
            return value_at<std::uint8_t>(rows, row);
        case ElementType::i32:
            return value_at<std::int32_t>(rows, row);
        default:
            return value_at<std::int64_t>(rows, row);
    }
}

std::optional<BadLabel> first_bad_label(const Field& field,
                                        std::span<const std::byte> rows,
                                        std::size_t count) {
    if (field.classes() == 0 || !is_whole(field.type)) return {};
    for (std::size_t row = 0; row < count; ++row) {
        const std::int64_t label = label_at(field.type, rows, row);
        if (label < 0 || label >= field.classes()) return BadLabel{row, label};
    }
    return {};
}

}  // namespace lockstep
