// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sources of rows for `pack`: one small class per input format.
#pragma once

#include "lockstep/core/hash.hpp"
#include "lockstep/data/manifest.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// Samples with named fields, in the order of the input. Several threads may access them at random,
/// in bounded memory: rows are read, decoded or generated on request.
class RowSource {
  public:
    virtual ~RowSource() = default;

    std::uint64_t samples() const { return samples_; }  ///< number of rows for read()

    /// Returns name, type, shape and layout of each field, and the names of classes if the input
    /// has them; statistics are empty, unless they are known to be right.
    const std::vector<Field>& fields() const { return fields_; }

    /// Returns the order of the rows; it becomes a manifest's row_order unless they are shuffled.
    virtual std::string row_order() const { return "source"; }

    /// Fills `out`, of the field's bytes_per_sample(), with row `row` of field number `field`,
    /// little-endian. Several threads may call it at the same time. Errors: those of the format,
    /// naming the input.
    virtual void read(std::size_t field, std::uint64_t row, std::span<std::byte> out) const = 0;

    /// Returns what the input calls row `row`, such as a file's name; "" if it has no name for it.
    virtual std::string row_name([[maybe_unused]] std::uint64_t row) const { return ""; }

    /// Returns a hash of the input's content, which may require reading all of it; equal inputs
    /// give equal data sets.
    virtual Hash128 fingerprint() const = 0;

  protected:
    /// A constructor that knows them later sets the members itself.
    explicit RowSource(std::uint64_t samples = 0, std::vector<Field> fields = {})
        : samples_(samples), fields_(std::move(fields)) {}

    std::uint64_t samples_;
    std::vector<Field> fields_;
};

}  // namespace lockstep
