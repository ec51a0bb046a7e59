// SPDX-License-Identifier: Apache-2.0
// Fills memory with a part of a data set's blocks, by several threads.
#pragma once

#include "lockstep/data/resident.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace lockstep {

/// A block's state once its bytes are settled; other values: not yet. Memory does not hold these
/// words by chance.
inline constexpr std::uint32_t block_loaded = 0x4C6F6164, block_masked = 0x4D61736B;

/// One block of one field.
struct FieldBlock {
    std::size_t field = 0, block = 0;
    std::uint64_t bytes = 0;  ///< decoded size of its rows
};

/// Returns the blocks of a part: consecutive, of near-equal bytes, disjoint from the other parts'.
std::vector<FieldBlock> blocks_of_part(const DatasetIndex& index, int part, int parts);

/// The destination of decoded rows and of blocks' states, by field.
struct LoadTarget {
    std::shared_ptr<const DatasetIndex> index;
    const std::vector<std::span<std::byte>>& fields;
    const std::vector<std::span<std::uint32_t>>& states;
};

/// Loads blocks. Errors: as ResidentRows::load().
StreamStats load_blocks(const LoadTarget& target, const LoadOptions& options);

}  // namespace lockstep
