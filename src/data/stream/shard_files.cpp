// SPDX-License-Identifier: Apache-2.0
#include "shard_files.hpp"

#include <fcntl.h>

namespace lockstep {

ShardFiles::ShardFiles(std::shared_ptr<const DatasetIndex> index, Access access)
    : index_(std::move(index)), access_(access), files_(index_->shards().size()) {}

std::filesystem::path ShardFiles::path(std::uint32_t shard) const {
    return index_->path() / index_->shards()[shard].name;
}

int ShardFiles::descriptor(std::uint32_t shard) {
    const std::scoped_lock lock(mutex_);
    UniqueFd& file = files_[shard];
    if (!file) {
        file = open_for_reading(path_beneath(index_->path(), index_->shards()[shard].name));
        if (access_ == Access::scattered)
            ::posix_fadvise(file.value(), 0, 0, POSIX_FADV_RANDOM);  // only advice
    }
    return file.value();
}

}  // namespace lockstep
