// SPDX-License-Identifier: Apache-2.0
// Advice to the operating system about pages of shards: read these soon, drop those.
#pragma once

#include "request_plan.hpp"
#include "shard_files.hpp"

#include <atomic>
#include <cstdint>
#include <vector>

namespace lockstep {

/// Makes the system read the bytes of the plan's requests, if they are not in the page cache
/// already; does not wait and never fails. A request that is found there costs one system call.
void read_ahead(ShardFiles& files, const RequestPlan& plan);

/// Cancels that for bytes that nobody will read now.
void forget(ShardFiles& files, const RequestPlan& plan);

/// Drops the page cache's copy of these bytes of `file`, so that the next read is one of the disk.
/// Only whole huge pages are dropped: the system keeps a page, or a group that it holds as one, if
/// the range covers it in part. Never fails; has no effect on a file system in memory.
void drop_pages(int file, std::uint64_t offset, std::uint64_t bytes);

/// Drops pages after they are read. Pages are larger than some blocks: one that two blocks share is
/// dropped after the second of them. Any thread.
class PageDropper {
  public:
    explicit PageDropper(ShardFiles& files);

    /// Notes that the blocks of these pieces, all of one shard, were read in `epoch`.
    void consumed(std::uint64_t epoch, std::span<const BlockPiece> pieces);

  private:
    struct Range {
        std::uint64_t begin = 0, end = 0;
    };
    bool is_consumed(std::uint64_t epoch, std::size_t field, std::size_t block) const;
    Range pages_of(std::uint64_t epoch, const BlockPiece& piece) const;

    ShardFiles& files_;
    std::uint64_t page_;
    std::vector<std::vector<std::atomic<std::uint32_t>>> epochs_;  // by field and block: 1 + last
};

}  // namespace lockstep
