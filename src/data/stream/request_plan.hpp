// SPDX-License-Identifier: Apache-2.0
// Plans few reads for the rows of a window.
#pragma once

#include "lockstep/data/dataset_index.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// Rows of one stored block and their destination. With `out` empty they are not wanted yet. For a
/// tile `out` has room for whole samples, of which it fills its part.
struct BlockPiece {
    std::size_t field = 0, block = 0;  ///< stored_blocks(field)[block]
    std::uint64_t skip_rows = 0;       ///< rows of the decoded block before these
    std::span<std::byte> out;
};

/// Blocks that are neighbours in a shard, except for small gaps, and are read at once.
struct ReadRequest {
    std::uint32_t shard = 0;
    std::uint64_t begin = 0, end = 0;         ///< range in the file
    std::size_t first_piece = 0, pieces = 0;  ///< range in the plan; those of one block in a row
};

/// Limits of joining blocks.
struct RequestLimits {
    std::uint64_t bytes = 1u << 20;  ///< a larger block is a request of its own
    std::uint64_t gap_bytes =
        4096;  ///< unused bytes that are read, at most an eighth of those before
    std::size_t pieces = 256;
};

/// A plan that is reused for each window. One thread.
class RequestPlan {
  public:
    explicit RequestPlan(const DatasetIndex& index, const RequestLimits& limits = {})
        : index_(index), limits_(limits) {}

    void clear();

    /// Adds rows [first, first + rows) of `field` for `out`, which has room for exactly them, or is
    /// empty.
    void add(std::size_t field, std::uint64_t first, std::uint64_t rows, std::span<std::byte> out);

    /// Adds all rows of one block for `out`, which has room for exactly them.
    void add_block(std::size_t field, std::size_t block, std::span<std::byte> out) {
        pieces_.push_back({field, block, 0, out});
    }

    /// Adds rows of all fields: runs end to end in fields[f].
    void add(std::span<const RowRun> runs, std::span<const std::span<std::byte>> fields);

    /// Sorts what was added in the order of the files. Then requests() and pieces_of() are valid.
    void arrange();

    std::span<const ReadRequest> requests() const { return requests_; }
    std::span<const BlockPiece> pieces_of(const ReadRequest& request) const {
        return std::span(pieces_).subspan(request.first_piece, request.pieces);
    }

  private:
    const StoredBlock& stored(const BlockPiece& piece) const {
        return index_.stored_blocks(piece.field)[piece.block];
    }
    bool fits(const ReadRequest& request, const StoredBlock& next) const;

    const DatasetIndex& index_;
    RequestLimits limits_;
    std::vector<BlockPiece> pieces_;
    std::vector<ReadRequest> requests_;
};

}  // namespace lockstep
