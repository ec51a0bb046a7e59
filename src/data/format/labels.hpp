// SPDX-License-Identifier: Apache-2.0
// Class numbers, as whatever whole numbers they are stored.
#pragma once

#include "lockstep/data/manifest.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace lockstep {

/// The label of row number `row` of rows of `type`: u8, i32 or i64.
std::int64_t label_at(ElementType type, std::span<const std::byte> rows, std::size_t row);

/// A label that is no class of its field.
struct BadLabel {
    std::size_t row = 0;
    std::int64_t label = 0;
};

/// The first of `count` rows that has one; nothing where `field` is not one of labels.
std::optional<BadLabel> first_bad_label(const Field& field,
                                        std::span<const std::byte> rows,
                                        std::size_t count);

}  // namespace lockstep
