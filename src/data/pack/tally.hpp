// SPDX-License-Identifier: Apache-2.0
// Sums over a part of the rows for one field; sums of parts add up to sums of the whole.
#pragma once

#include "lockstep/data/row_source.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Sums of one field over some rows. One thread.
class Tally {
  public:
    virtual ~Tally() = default;

    /// Adds row number `row`. Errors: E210.
    virtual void add(std::uint64_t row, std::span<const std::byte> bytes) = 0;

    /// Adds the sums of another of the same kind; the order of calls may matter.
    virtual void add(std::span<const std::uint64_t> words) = 0;

    /// Returns its sums, for add() elsewhere.
    virtual std::vector<std::uint64_t> words() const = 0;

    /// Stores the result in `field`, of `samples` rows. Errors: E210.
    virtual void finish(std::uint64_t samples, Field& field) const = 0;
};

/// Limits of class numbers.
struct ClassLimits {
    std::int64_t expected = 0;  ///< 0: no expectation
    std::vector<std::string> names;
};

/// Counts the classes in `field`, of whole numbers; it must outlive the tally.
std::unique_ptr<Tally> label_tally(const Field& field, const ClassLimits& limits);

/// Makes exact sums over the pixels of each channel of u8 CHW images.
std::unique_ptr<Tally> pixel_tally(const Field& field);

/// Makes sums of f32 or f64 values, per channel or feature, as differences to those of `first_row`;
/// values that are not finite are left out.
std::unique_ptr<Tally> real_tally(const Field& field, std::span<const std::byte> first_row);

}  // namespace lockstep
