// SPDX-License-Identifier: Apache-2.0
// What the operating system is told about pages of shards: read these soon, forget those.
#pragma once

#include "request_plan.hpp"
#include "shard_files.hpp"

#include <atomic>
#include <cstdint>
#include <vector>

namespace lockstep {

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
    std::uint64_t page_;
    std::vector<std::vector<std::atomic<std::uint32_t>>> epochs_;  // by field and block: 1 + last
};

}  // namespace lockstep
