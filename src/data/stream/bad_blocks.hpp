// SPDX-License-Identifier: Apache-2.0
// Blocks that could not be read: each gives one warning, and their rows become masked samples.
#pragma once

#include "lockstep/core/error.hpp"

#include "request_plan.hpp"
#include "shard_files.hpp"

#include <cstddef>
#include <mutex>
#include <set>
#include <utility>

namespace lockstep {

/// Collects bad blocks. Any thread.
class BadBlocks {
  public:
    explicit BadBlocks(const ShardFiles& files) : files_(files) {}

    /// Warns of the block with shard, field, block, offset and samples, if it is the first time. A
    /// shard that cannot be opened gives one warning for all of its blocks.
    void add(const BlockPiece& piece, const Error& error);

  private:
    void warn_of_shard(std::uint32_t shard, const Error& error);
    void warn_of_block(const BlockPiece& piece, const Error& error) const;

    const ShardFiles& files_;
    std::mutex mutex_;
    std::size_t warnings_ = 0;
    std::set<std::pair<std::size_t, std::size_t>> known_;  // field and block
    std::set<std::uint32_t> closed_;                       // shards
};

/// Returns true if `error` means damaged or missing data, so that their samples may be masked:
/// E201, E202, E204, E210, E213, E409. All others end the job, such as too many open files or a
/// bug.
bool is_about_data(const Error& error);

/// Returns the number of `block` among the blocks of its shard.
std::size_t number_in_shard(const std::vector<StoredBlock>& blocks, std::size_t block);

}  // namespace lockstep
