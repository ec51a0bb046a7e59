// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the elements of a collective are, and how many of them each rank looks after.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lockstep {

/// bfloat16 is added in float32 and rounded to nearest even once, at the end of a sum.
enum class DataType : std::uint8_t { float32, bfloat16, float64, int64 };

/// Bytes of one element.
std::size_t size_of(DataType type);

/// nccl-tests' words: "float", "bfloat16", "double", "int64".
std::string_view name_of(DataType type);

/// A half-open range of elements.
struct ElementRange {
    std::size_t begin = 0;                            ///< the first element
    std::size_t end = 0;                              ///< one past the last
    std::size_t size() const { return end - begin; }  ///< elements
    bool operator==(const ElementRange&) const = default;
};

/// Part `index` of `parts` of `count` elements: whole 64-byte lines (the last part takes what is
/// left over), near-equal, in order, may be empty.
ElementRange stripe_of(std::size_t count, DataType type, int index, int parts);

}  // namespace lockstep
