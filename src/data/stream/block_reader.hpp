// SPDX-License-Identifier: Apache-2.0
// Reads rows of one field: pread, verify, decode, copy; around libhdf5 and its lock.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/data/batch_stream.hpp"
#include "lockstep/data/dataset_index.hpp"

#include "format/codec.hpp"

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// The shards' descriptors, each opened when it is first needed. Any thread.
class ShardFiles {
  public:
    explicit ShardFiles(std::shared_ptr<const DatasetIndex> index);

    const DatasetIndex& index() const { return *index_; }

    /// A descriptor that stays open as long as this object. Errors: E201, E202, E220, E204.
    int descriptor(std::uint32_t shard);
    std::filesystem::path path(std::uint32_t shard) const;

  private:
    std::shared_ptr<const DatasetIndex> index_;
    std::mutex mutex_;
    std::vector<UniqueFd> files_;
};

/// Reads rows through buffers of its own, which it makes once. One thread.
class BlockReader {
  public:
    explicit BlockReader(ShardFiles& files);

    /// Fills `out` with rows [first, first + rows) of field number `field`. Whole blocks are read
    /// and checked even where only some of their rows are asked for; bytes that do not match their
    /// hash are read once more, past the page cache.
    /// Errors: E213 naming shard, field, block, offset and samples; E204; E210; E402.
    void read_rows(std::size_t field,
                   std::uint64_t first,
                   std::uint64_t rows,
                   std::span<std::byte> out);

    /// Reads, checks and expands one block; its rows are valid until the next call.
    std::span<const std::byte> read_block(std::size_t field, std::size_t block);

    /// What it did since the last call.
    StreamStats take_stats() { return std::exchange(stats_, {}); }

    /// Bytes of the buffers of one reader of this data set.
    static std::uint64_t buffer_bytes(const DatasetIndex& index);

  private:
    void read_into(std::size_t field, std::size_t block, std::span<std::byte> out);
    void fetch(const StoredBlock& block, std::span<std::byte> stored);
    bool is_intact(const StoredBlock& block, std::span<const std::byte> stored);
    void check_labels(std::size_t field,
                      const StoredBlock& block,
                      std::span<const std::byte> rows) const;
    Error damaged(std::size_t field, std::size_t block, const std::string& why) const;

    ShardFiles& files_;
    const DatasetIndex& index_;
    Decoder decoder_;
    std::vector<std::byte> stored_, decoded_;
    StreamStats stats_;
};

}  // namespace lockstep
