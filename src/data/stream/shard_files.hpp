// SPDX-License-Identifier: Apache-2.0
// The files of a data set, open for reading.
#pragma once

#include "lockstep/core/files.hpp"
#include "lockstep/data/dataset_index.hpp"

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace lockstep {

/// The way in which a file will be read: the system's own read-ahead helps only sequential reads.
enum class Access { sequential, scattered };

/// Raises this process's soft limit of open files, within the hard one, so that `count` more may be
/// opened.
void allow_open_files(std::size_t count);

/// The shards' descriptors, each opened on first use. Data kept in the index are a file in memory.
/// Any thread.
class ShardFiles {
  public:
    explicit ShardFiles(std::shared_ptr<const DatasetIndex> index,
                        Access access = Access::sequential);

    const DatasetIndex& index() const { return *index_; }

    /// Returns a descriptor that stays open as long as this object. Errors: E201, E202, E220, E204,
    /// E402 (too many are open).
    int descriptor(std::uint32_t shard);
    std::filesystem::path path(std::uint32_t shard) const;  ///< for messages, too

  private:
    UniqueFd open(std::uint32_t shard) const;

    std::shared_ptr<const DatasetIndex> index_;
    Access access_;
    std::mutex mutex_;
    std::vector<UniqueFd> files_;
};

}  // namespace lockstep
