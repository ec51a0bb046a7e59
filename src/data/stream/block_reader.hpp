// SPDX-License-Identifier: Apache-2.0
// Reads rows without libhdf5 and its lock: pread, verify, decode, copy.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/data/batch_stream.hpp"
#include "lockstep/data/dataset_index.hpp"

#include "format/codec.hpp"
#include "request_plan.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sys/uio.h>

namespace lockstep {

/// Called for a block whose bytes cannot be read.
using OnBadBlock = std::function<void(const BlockPiece&, const Error&)>;

/// Reads rows through buffers of its own, which it makes once. One thread.
///
/// Whole blocks are read and checked even if only some of their rows are needed. Bytes that do not
/// match their hash are read once more, past the page cache. Blocks that are stored raw are read
/// directly to the place of their rows. Errors of all: E213 naming shard, field, block, offset and
/// samples; E204; E210; E236; E402; those of opening.
class BlockReader {
  public:
    /// Makes buffers for all fields, or for the blocks of one.
    explicit BlockReader(ShardFiles& files, std::optional<std::size_t> field = {});

    /// Reads the rows of one request of `plan`, made within the usual limits. A bad block does not
    /// affect its neighbours: `on_bad` is called and its rows are undefined; without `on_bad` the
    /// error is thrown.
    void read(const RequestPlan& plan, const ReadRequest& request, const OnBadBlock& on_bad = {});

    /// Fills `out` with rows [first, first + rows) of field number `field`.
    void read_rows(std::size_t field,
                   std::uint64_t first,
                   std::uint64_t rows,
                   std::span<std::byte> out);

    /// Reads, checks and expands one block. Its rows (for a tile its contiguous part of them) are
    /// valid until the next call.
    std::span<const std::byte> read_block(std::size_t field, std::size_t block);

    /// Returns its statistics since the last call.
    StreamStats take_stats() { return std::exchange(stats_, {}); }

    /// Returns the size of the buffers of one reader of this data set.
    static std::uint64_t buffer_bytes(const DatasetIndex& index);

  private:
    /// The pieces of one block, and the place of its stored bytes.
    struct BlockRead {
        std::span<const BlockPiece> pieces;
        std::span<std::byte> stored;
    };

    void split_into_blocks(std::span<const BlockPiece> pieces);
    std::span<std::byte> place_for(const BlockRead& read, std::uint64_t& staged);
    bool fetch_together(const ReadRequest& request);
    std::span<std::byte> values_of(const BlockRead& read);
    std::span<std::byte> expanded(const BlockRead& read);
    void put(const BlockPiece& piece, std::span<const std::byte> values) const;
    void fetch(const StoredBlock& block, std::span<std::byte> stored);
    void make_intact(const BlockPiece& piece, std::span<std::byte> stored);
    bool is_intact(const StoredBlock& block, std::span<const std::byte> stored);
    void check_values(const Field& field,
                      const StoredBlock& block,
                      std::span<const std::byte> rows) const;
    std::string restoring(std::string_view what) const;
    Error damaged(std::size_t field, std::size_t block, const std::string& why) const;
    const StoredBlock& stored(const BlockPiece& piece) const {
        return index_.stored_blocks(piece.field)[piece.block];
    }

    ShardFiles& files_;
    const DatasetIndex& index_;
    RequestPlan rows_plan_;
    Decoder decoder_;
    std::vector<std::byte> stored_, decoded_, gap_;
    std::vector<BlockRead> blocks_;  // blocks of the current request
    std::vector<iovec> places_;      // for consecutive bytes of a file
    StreamStats stats_;
};

}  // namespace lockstep
