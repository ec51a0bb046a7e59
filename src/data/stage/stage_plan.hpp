// SPDX-License-Identifier: Apache-2.0
// Which piece of which file travels when, through whom: a pure function.
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
    bool operator==(const StagePiece&) const = default;
};

/// `shards` (numbers, ascending) in groups, each but the last of at least `bytes`.
std::vector<std::vector<std::size_t>> stage_rounds(const Manifest& manifest,
                                                   const std::vector<std::size_t>& shards,
                                                   std::uint64_t bytes);

/// The pieces of `shards` (numbers, ascending) that go through column `column` of `columns`, in
/// order. Over all columns each byte is in one piece; owners take turns.
std::vector<StagePiece> pieces_of_column(const Manifest& manifest,
                                         const std::vector<std::size_t>& shards,
                                         std::uint64_t piece_bytes,
                                         int column,
                                         int columns,
                                         int nodes);

}  // namespace lockstep
