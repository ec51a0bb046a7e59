// SPDX-License-Identifier: Apache-2.0
// Where `pack` takes rows from: one small interface per input format.
#pragma once

#include "lockstep/core/hash.hpp"
#include "lockstep/data/manifest.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

namespace lockstep {

/// Samples with named fields, in the order of the input. Random access; one thread.
class RowSource {
  public:
    virtual ~RowSource() = default;

    virtual std::uint64_t samples() const = 0;

    /// Name, type, shape and layout of each field; statistics are left empty.
    virtual const std::vector<Field>& fields() const = 0;

    /// The bytes of row `row` of field number `field`; valid while the source lives.
    virtual std::span<const std::byte> row(std::size_t field, std::uint64_t row) const = 0;

    /// Hash of the input's content; equal inputs give equal data sets.
    virtual Hash128 fingerprint() const = 0;
};

/// IDX files (http://yann.lecun.com/exdb/mnist/), plain or gzip: `images` as u8 [C,H,W] (C = 1 for
/// three dimensions) and `labels` as i64. Errors: E201, E202, E214 (malformed), E209 (counts).
std::unique_ptr<RowSource> open_idx(const std::filesystem::path& images,
                                    const std::filesystem::path& labels);

}  // namespace lockstep
