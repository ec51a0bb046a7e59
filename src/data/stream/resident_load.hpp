// SPDX-License-Identifier: Apache-2.0
// Fills memory with a part of a data set's blocks, by several threads.
#pragma once

#include "lockstep/data/resident.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace lockstep {

/// What a block's state says once its bytes are settled; anything else: not yet. Words that memory
/// does not hold by chance.
inline constexpr std::uint32_t block_loaded = 0x4C6F6164, block_masked = 0x4D61736B;

/// One block of one field.
struct FieldBlock {
    std::size_t field = 0, block = 0;
    std::uint64_t bytes = 0;  ///< of its rows, decoded
};

/// The blocks of a part: consecutive, of near-equal bytes, disjoint from the other parts'.
std::vector<FieldBlock> blocks_of_part(const DatasetIndex& index, int part, int parts);

/// Where decoded rows and the states of blocks go, by field.
struct LoadTarget {
    std::shared_ptr<const DatasetIndex> index;
    const std::vector<std::span<std::byte>>& fields;
    const std::vector<std::span<std::uint32_t>>& states;
};

/// Errors: as ResidentRows::load().
StreamStats load_blocks(const LoadTarget& target, const LoadOptions& options);

}  // namespace lockstep
