// SPDX-License-Identifier: Apache-2.0
// Packed numbers as the CF conventions define them (section 8.1, and 2.5.1 for missing data;
// https://cfconventions.org/cf-conventions/cf-conventions.html):
//
//     value = stored * scale_factor + add_offset
//
// The value is computed in double and rounded once to f32. A missing value never reaches a model
// silently: it becomes a number that the user chose, or `no_value`, which readers refuse.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/data/dataset_index.hpp"
#include "lockstep/data/manifest.hpp"

#include "widening.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// The CF attributes of a data set's numbers. Stored values are bits: of an i64 (u64 for 64-bit
/// numbers without sign) if they are whole, else of a double.
struct CfPacking {
    std::optional<double> scale, offset;       ///< scale_factor, add_offset
    std::vector<std::uint64_t> missing;        ///< _FillValue and missing_value
    std::optional<std::uint64_t> least, most;  ///< valid_min, valid_max or valid_range
    bool operator==(const CfPacking&) const = default;

    bool is_empty() const { return *this == CfPacking{}; }

    /// Returns the names of the attributes: "scale_factor, add_offset".
    std::string text() const;
};

/// Largest length of a data set's list of missing values.
inline constexpr std::size_t most_missing_values = 64;

/// The first filter of a chain, which makes f32 of stored numbers.
class Unpacking {
  public:
    /// Replaces missing values by default: a NaN that no other value becomes.
    static constexpr std::uint32_t no_value = 0x7fc0cf01;

    /// Returns nothing for numbers that cannot be read.
    static std::optional<Unpacking> of(const StoredNumber& stored,
                                       CfPacking packing,
                                       std::optional<double> instead);

    /// Returns nothing for a filter that as_filter() did not make.
    static std::optional<Unpacking> of(const Filter& filter);

    Filter as_filter() const;
    std::size_t stored_bytes() const;  ///< size of an element

    /// Returns the stored size of `raw` bytes of f32.
    std::uint64_t stored_bytes_of(std::uint64_t raw) const {
        return raw / sizeof(float) * stored_bytes();
    }

    /// Fills `raw` with f32. Returns false unless both have the same number of elements, and
    /// nothing else.
    [[nodiscard]] bool undo(std::span<const std::byte> stored, std::span<std::byte> raw) const;

  private:
    Unpacking(std::uint32_t code, CfPacking packing, std::optional<double> instead)
        : code_(code), packing_(std::move(packing)), instead_(instead) {}

    std::uint32_t code_;  // kind of numbers, from 1
    CfPacking packing_;
    std::optional<double> instead_;
};

/// Returns the place of the first `no_value` in `values` of f32; nothing if there is none.
std::optional<std::uint64_t> first_missing(std::span<const std::byte> values);

/// Returns E236: row `row` of `field` in `file`, `sample` of the data set, has a missing value.
Error missing_value(const Field& field,
                    const std::filesystem::path& file,
                    std::uint64_t row,
                    std::uint64_t sample);

}  // namespace lockstep
