// SPDX-License-Identifier: Apache-2.0
#include "shard_files.hpp"

#include <algorithm>

#include <fcntl.h>
#include <sys/resource.h>

namespace lockstep {

void allow_open_files(std::size_t count) {
    static std::mutex mutex;
    const std::scoped_lock lock(mutex);
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    // A few hundred for everything else that is or will be open.
    const rlim_t wanted = std::min<rlim_t>(count + 512, limit.rlim_max);
    if (wanted <= limit.rlim_cur) return;
    limit.rlim_cur = wanted;
    ::setrlimit(RLIMIT_NOFILE, &limit);
}

ShardFiles::ShardFiles(std::shared_ptr<const DatasetIndex> index, Access access)
    : index_(std::move(index)), access_(access), files_(index_->shards().size()) {
    allow_open_files(2 * files_.size());  // training and evaluation have one each
}

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
