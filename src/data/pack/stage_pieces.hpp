// SPDX-License-Identifier: Apache-2.0
// The schedule by which pieces of files go from the node that reads them to all nodes: pure
// functions.
#pragma once

#include "lockstep/data/manifest.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

/// Part of a shard.
struct StagePiece {
    std::size_t shard = 0;
    std::uint64_t offset = 0, bytes = 0;
    int owner = 0;  ///< number of the node that reads it
};

/// Returns `shards` (numbers, ascending) in groups, each but the last of at least `bytes`.
std::vector<std::vector<std::size_t>> stage_rounds(const Manifest& manifest,
                                                   const std::vector<std::size_t>& shards,
                                                   std::uint64_t bytes);

/// Returns the pieces of `shards` (numbers, ascending) that go through column `column` of
/// `columns`, in order. Over all columns each byte is in one piece; owners take turns.
std::vector<StagePiece> pieces_of_column(const Manifest& manifest,
                                         const std::vector<std::size_t>& shards,
                                         std::uint64_t piece_bytes,
                                         int column,
                                         int columns,
                                         int nodes);

}  // namespace lockstep
