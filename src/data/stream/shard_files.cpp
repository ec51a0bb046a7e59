// SPDX-License-Identifier: Apache-2.0
#include "shard_files.hpp"

namespace lockstep {

ShardFiles::ShardFiles(std::shared_ptr<const DatasetIndex> index)
    : index_(std::move(index)), files_(index_->shards().size()) {}

std::filesystem::path ShardFiles::path(std::uint32_t shard) const {
    return index_->path() / index_->shards()[shard].name;
}

int ShardFiles::descriptor(std::uint32_t shard) {
    const std::scoped_lock lock(mutex_);
    UniqueFd& file = files_[shard];
    if (!file) file = open_for_reading(path_beneath(index_->path(), index_->shards()[shard].name));
    return file.value();
}

}  // namespace lockstep
