// SPDX-License-Identifier: Apache-2.0
// Numbers that stand for others, as the CF conventions pack them (section 8.1, and 2.5.1 for
// missing data; https://cfconventions.org/cf-conventions/cf-conventions.html):
//
//     value = stored * scale_factor + add_offset
//
// computed in double, rounded once to f32. What attributes call missing is nothing that a model may
// be given unasked: it becomes a number that the user stated, or `no_value`, which readers refuse.
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
                    const std::filesystem::path& file,
                    std::uint64_t row,
                    std::uint64_t sample);

}  // namespace lockstep
