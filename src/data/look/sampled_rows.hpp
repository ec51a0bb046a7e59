// SPDX-License-Identifier: Apache-2.0
// Some rows of a field from all over it, in bounded memory and time.
#pragma once

#include "lockstep/data/dataset_index.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace lockstep {

/// Rows of one field, in ascending order, side by side.
struct SampledRows {
    ElementType type = ElementType::u8;
    std::vector<std::int64_t> shape;  ///< of a row
    std::uint64_t rows = 0, of = 0;   ///< how many, of how many
    std::vector<std::byte> bytes;

    bool is_all() const { return rows == of; }
    std::span<const std::byte> row(std::uint64_t number) const;
};

/// All rows if they take at most 8 MiB; else as many as that from 16 places that are equally far
/// apart, or one from each of fewer if blocks are large. Nothing where reading one would take more
/// than 512 MiB. Errors: those of BlockReader.
std::optional<SampledRows> sample_rows(const std::shared_ptr<const DatasetIndex>& index,
                                       std::size_t field);

}  // namespace lockstep
