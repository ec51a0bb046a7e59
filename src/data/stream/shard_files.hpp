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

}  // namespace lockstep
