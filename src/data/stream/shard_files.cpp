// SPDX-License-Identifier: Apache-2.0
#include "shard_files.hpp"

#include "lockstep/core/error.hpp"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <sys/mman.h>
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
    : index_(std::move(index)), access_(access), files_(index_->shards().size() + 1) {
    allow_open_files(2 * files_.size());  // training and evaluation have one each
}

std::filesystem::path ShardFiles::path(std::uint32_t shard) const {
    return shard == kept_in_index ? index_->path() : index_->path() / index_->shards()[shard].name;
}

// Readers know files only; a copy in memory of what is small is cheaper than telling them more.
UniqueFd ShardFiles::open(std::uint32_t shard) const {
    if (shard != kept_in_index)
        return open_for_reading(path_beneath(index_->path(), index_->shards()[shard].name));
    UniqueFd memory(::memfd_create("lockstep-labels", MFD_CLOEXEC));
    check(static_cast<bool>(memory),
          [] { return system_error("make", "a file in memory for labels", errno); });
    write_all(memory.value(), index_->kept(), "labels in memory");
    return memory;
}

int ShardFiles::descriptor(std::uint32_t shard) {
    const std::scoped_lock lock(mutex_);
    UniqueFd& file = shard == kept_in_index ? files_.back() : files_[shard];
    if (!file) {
        file = open(shard);
        if (access_ == Access::scattered)
            ::posix_fadvise(file.value(), 0, 0, POSIX_FADV_RANDOM);  // only advice
    }
    return file.value();
}

}  // namespace lockstep
