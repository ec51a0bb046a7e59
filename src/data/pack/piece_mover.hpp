// SPDX-License-Identifier: Apache-2.0
// Moves pieces of files from the node that reads them to all nodes that lack them. The schedule of
// pieces is a pure function.
#pragma once

#include "lockstep/data/manifest.hpp"
#include "lockstep/data/pack.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace lockstep {

/// Part of a shard.
struct StagePiece {
    std::size_t shard = 0;
    std::uint64_t offset = 0, bytes = 0;
    int owner = 0;  ///< number of the node that reads it
    bool operator==(const StagePiece&) const = default;
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

/// Returns the name of an incomplete file.
fs::path part_of(const fs::path& path);

/// Collective over a column, of which this is one process: the pieces of pieces_of_column() come to
/// all shards in `folder` that this node lacks, `missing` (numbers, ascending). Its own pieces are
/// read ahead while others travel. A failure here (reading, writing, `report`) ends the column when
/// it is this node's turn to send: the others throw the same error. Returns the bytes read.
std::uint64_t move_pieces(const StageOptions& options,
                          const Manifest& manifest,
                          const fs::path& folder,
                          const std::vector<std::size_t>& missing,
                          const std::vector<StagePiece>& pieces,
                          const StageReport& report);

}  // namespace lockstep
