// SPDX-License-Identifier: Apache-2.0
// The files of a data set, open for reading, and which bytes of them hold the rows of a window: as
// few reads as their places allow.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/data/dataset_index.hpp"
#include "lockstep/data/order.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace lockstep {

/// How a file will be read: the system reads ahead by itself only where that helps.
enum class Access { sequential, scattered };

/// Raises this process's soft limit of open files, within the hard one, so that `count` more may be
/// opened.
void allow_open_files(std::size_t count);

/// The shards' descriptors, each opened when it is first needed. What the index keeps of the data
/// is a file, too, in memory. Any thread.
class ShardFiles {
  public:
    explicit ShardFiles(std::shared_ptr<const DatasetIndex> index,
                        Access access = Access::sequential);

    const DatasetIndex& index() const { return *index_; }

    /// A descriptor that stays open as long as this object. Errors: E201, E202, E220, E204, E402
    /// (too many are open).
    int descriptor(std::uint32_t shard);
    fs::path path(std::uint32_t shard) const;  ///< for messages, too

  private:
    UniqueFd open(std::uint32_t shard) const;

    std::shared_ptr<const DatasetIndex> index_;
    Access access_;
    std::mutex mutex_;
    std::vector<UniqueFd> files_;
};

/// Rows of one stored block and where they go. With `out` empty nobody wants them yet. Of a tile
/// `out` has room for whole samples, of which it fills its part.
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

/// Has the system fetch what the plan's requests cover, if it is not in the page cache already;
/// does not wait and never fails. A request that is found there costs one system call.
void read_ahead(ShardFiles& files, const RequestPlan& plan);

/// Takes that back for what nobody will read now.
void forget(ShardFiles& files, const RequestPlan& plan);

/// Drops what the page cache has of these bytes of `file`, so that the next read is one of the
/// disk. Whole huge pages go: the system keeps a page, or a group that it holds as one, that the
/// range covers in part. Never fails; a file system in memory has nothing else.
void drop_pages(int file, std::uint64_t offset, std::uint64_t bytes);

/// Drops pages behind the readers. Pages are larger than some blocks: one that two blocks share is
/// dropped with the second of them. Any thread.
class PageDropper {
  public:
    explicit PageDropper(ShardFiles& files);

    /// The blocks of these pieces, all of one shard, were read in `epoch`.
    void consumed(std::uint64_t epoch, std::span<const BlockPiece> pieces);

  private:
    struct Range {
        std::uint64_t begin = 0, end = 0;
    };
    bool is_consumed(std::uint64_t epoch, std::size_t field, std::size_t block) const;
    Range pages_of(std::uint64_t epoch, const BlockPiece& piece) const;

    ShardFiles& files_;
    std::uint64_t page_ = 0;
    std::vector<std::vector<std::atomic<std::uint32_t>>> epochs_;  // by field and block: 1 + last
};

/// Any thread.
class BadBlocks {
  public:
    explicit BadBlocks(const ShardFiles& files) : files_(files) {}

    /// Warns of the block with shard, field, block, offset and samples, if it is the first time; of
    /// a shard that cannot be opened once for all of its blocks.
    void add(const BlockPiece& piece, const Error& error);

  private:
    const ShardFiles& files_;
    std::mutex mutex_;
    std::size_t warnings_ = 0;
    std::set<std::pair<std::size_t, std::size_t>> known_;  // field and block
    std::set<std::uint32_t> closed_;                       // shards
};

/// Whether `error` says that data are bad or not there, so that their samples may be masked: E201,
/// E202, E204, E210, E213, E409. All others end the job, as too many open files or a bug do.
bool is_about_data(const Error& error);

/// Number of `block` among the blocks of its shard.
std::size_t number_in_shard(const std::vector<StoredBlock>& blocks, std::size_t block);

/// "'a.h5' is damaged: field 'images', block 7, 512 bytes at offset 4,096 (samples 0 to 63)";
/// `number` is that of the block in its shard.
std::string damage_text(const fs::path& path,
                        const Field& field,
                        std::size_t number,
                        const StoredBlock& block);

struct FieldBlock {
    std::size_t field = 0, block = 0;
    std::uint64_t bytes = 0;  ///< of its rows, decoded
};

/// The blocks of a part: consecutive, of near-equal bytes, disjoint from the other parts'.
std::vector<FieldBlock> blocks_of_part(const DatasetIndex& index, int part, int parts);

}  // namespace lockstep
