// SPDX-License-Identifier: Apache-2.0
// Elements whose width or byte order no field has: they are converted to the next wider type of
// ours that holds all their values.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/data/dataset_index.hpp"
#include "lockstep/data/manifest.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

template <class Value>
Value taken(const std::byte* from, std::endian order) {
    std::array<std::byte, sizeof(Value)> bytes{};
    std::memcpy(bytes.data(), from, sizeof(Value));
    if (order == std::endian::big) std::ranges::reverse(bytes);
    return std::bit_cast<Value>(bytes);
}

/// A 16-bit float: IEEE 754's binary16, or the upper half of a binary32.
struct Half {
    std::uint16_t bits;
};
struct Brain {
    std::uint16_t bits;
};

/// Converts exactly, also subnormal numbers; a NaN keeps its bits, as in numpy.
inline float widened(Half half) {
    const std::uint32_t sign = std::uint32_t{half.bits} >> 15 << 31;
    const std::uint32_t exponent = half.bits >> 10 & 0x1fU, fraction = half.bits & 0x3ffU;
    if (exponent == 0) {
        const float value = static_cast<float>(fraction) * 0x1p-24F;
        return sign != 0 ? -value : value;
    }
    const std::uint32_t wide = exponent == 0x1f ? 0xff : exponent + 112;
    return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

inline float widened(Brain brain) {
    return std::bit_cast<float>(std::uint32_t{brain.bits} << 16);
}

/// A number in two's complement or IEEE 754, or the upper half of an f32 (bfloat16).
struct StoredNumber {
    std::uint64_t bytes = 0;
    bool is_whole = false, has_sign = false, is_big_endian = false, is_brain = false;
    bool is_usual = true;  ///< false: of no such form, or not over all bits of 1 to 8 bytes
    bool operator==(const StoredNumber&) const = default;
};

/// The conversion of one kind of such elements, numbered from 1. 8 and 16 bits become i32, u32 and
/// u64 i64, 16-bit floats f32. u64 beyond i64 becomes the largest i64, so it is for labels only,
/// which are compared with their classes.
class Widening {
  public:
    /// Returns the conversion of numbers that no field has unchanged; `code` 0 if there is none.
    static Widening of(const StoredNumber& stored);
    /// Returns the conversion to class numbers, i64, of whole numbers of any width or of floats:
    /// values that are not whole become `no_class`. Code 0 if there is none.
    static Widening to_labels(const StoredNumber& stored);
    static constexpr std::int64_t no_class = INT64_MIN;

    /// Accepts any `code`: see is_known().
    explicit Widening(std::uint32_t code = 0) : code_(code) {}

    std::uint32_t code() const { return code_; }
    bool is_known() const;
    bool holds_all() const;  ///< true for all but u64
    ElementType type() const;
    std::size_t stored_bytes() const;  ///< size of an element

    /// Fills `raw`. Returns false unless both have the same number of elements, and nothing else.
    [[nodiscard]] bool undo(std::span<const std::byte> stored, std::span<std::byte> raw) const;

    /// Returns the stored size of `raw` bytes of converted elements.
    std::uint64_t stored_bytes_of(std::uint64_t raw) const {
        return raw / element_bytes(type()) * stored_bytes();
    }

  private:
    std::uint32_t code_;
};

/// What CF's attributes say of the numbers of a data set. Stored values are bits: of an i64 (u64
/// for numbers of 64 bits without sign) where they are whole, else of a double.
struct CfPacking {
    std::optional<double> scale, offset;       ///< scale_factor, add_offset
    std::vector<std::uint64_t> missing;        ///< _FillValue and missing_value
    std::optional<std::uint64_t> least, most;  ///< valid_min, valid_max or valid_range
    bool operator==(const CfPacking&) const = default;

    bool is_empty() const { return *this == CfPacking{}; }

    /// "scale_factor, add_offset": the attributes there are.
    std::string text() const;
};

/// A data set's lists of missing values are no longer than this.
inline constexpr std::size_t most_missing_values = 64;

/// The first filter of a chain: what stored numbers are made of f32.
class Unpacking {
  public:
    /// What stands in the place of missing values unless something else is stated: a NaN that no
    /// other value becomes.
    static constexpr std::uint32_t no_value = 0x7fc0cf01;

    /// Nothing for numbers that are not read.
    static std::optional<Unpacking> of(const StoredNumber& stored,
                                       CfPacking packing,
                                       std::optional<double> instead);

    /// Nothing for a filter that as_filter() did not make.
    static std::optional<Unpacking> of(const Filter& filter);

    Filter as_filter() const;
    std::size_t stored_bytes() const;  ///< of an element

    /// Of `raw` bytes of f32.
    std::uint64_t stored_bytes_of(std::uint64_t raw) const {
        return raw / sizeof(float) * stored_bytes();
    }

    /// Fills `raw` with f32; false unless both have as many elements, and nothing else.
    [[nodiscard]] bool undo(std::span<const std::byte> stored, std::span<std::byte> raw) const;

  private:
    Unpacking(std::uint32_t code, CfPacking packing, std::optional<double> instead)
        : code_(code), packing_(std::move(packing)), instead_(instead) {}

    std::uint32_t code_;  // which kind of numbers, from 1
    CfPacking packing_;
    std::optional<double> instead_;
};

/// The place of the first `no_value` in `values` of f32; nothing if there is none.
std::optional<std::uint64_t> first_missing(std::span<const std::byte> values);

/// E236: row `row` of `field` in `file`, `sample` of the data set, has a missing value.
Error missing_value(const Field& field,
                    const fs::path& file,
                    std::uint64_t row,
                    std::uint64_t sample);

}  // namespace lockstep
