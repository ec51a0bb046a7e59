// SPDX-License-Identifier: Apache-2.0
#include "stage_plan.hpp"

#include <algorithm>

namespace lockstep {

std::vector<std::vector<std::size_t>> stage_rounds(const Manifest& manifest,
                                                   const std::vector<std::size_t>& shards,
                                                   std::uint64_t bytes) {
    std::vector<std::vector<std::size_t>> rounds;
    std::uint64_t filled = bytes;
    for (const std::size_t shard : shards) {
        if (filled >= bytes) {
            rounds.emplace_back();
            filled = 0;
        }
        rounds.back().push_back(shard);
        filled += manifest.shards[shard].bytes;
    }
    return rounds;
}

std::vector<StagePiece> pieces_of_column(const Manifest& manifest,
                                         const std::vector<std::size_t>& shards,
                                         std::uint64_t piece_bytes,
                                         int column,
                                         int columns,
                                         int nodes) {
    std::vector<StagePiece> pieces;
    std::uint64_t number = 0;
    const auto width = static_cast<std::uint64_t>(columns);
    for (const std::size_t shard : shards) {
        const std::uint64_t size = manifest.shards[shard].bytes;
        for (std::uint64_t offset = 0; offset < size; offset += piece_bytes, ++number) {
            if (number % width != static_cast<std::uint64_t>(column)) continue;
            const auto owner = static_cast<int>(number / width % static_cast<std::uint64_t>(nodes));
            pieces.push_back({shard, offset, std::min(piece_bytes, size - offset), owner});
        }
    }
    return pieces;
}

}  // namespace lockstep
