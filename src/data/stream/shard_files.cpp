// SPDX-License-Identifier: Apache-2.0
#include "shard_files.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

namespace lockstep {
namespace {

// Descriptors for everything else that is or will be open.
constexpr rlim_t reserve = 512;

Error too_many_files(std::size_t files) {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    return Error("E402",
                 fmt::format("the data are {} files, and this process may open {}",
                             grouped(files),
                             grouped(limit.rlim_max)),
                 "each file of data stays open while it is read; the limit is that of 'ulimit -n'",
                 fmt::format("ulimit -n {} (root or the site raises a hard limit), or make few "
                             "files of them: lockstep data pack",
                             2 * files + reserve));
}

bool has_no_descriptor_left() {
    const UniqueFd one(::dup(STDIN_FILENO));
    return !one && (errno == EMFILE || errno == ENFILE);
}

}  // namespace

void allow_open_files(std::size_t count) {
    static std::mutex mutex;
    const std::scoped_lock lock(mutex);
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    const rlim_t wanted = std::min<rlim_t>(count + reserve, limit.rlim_max);
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
        try {
            file = open(shard);
        } catch (const Error&) {
            if (has_no_descriptor_left()) throw too_many_files(files_.size() - 1);
            throw;
        }
        if (access_ == Access::scattered)
            ::posix_fadvise(file.value(), 0, 0, POSIX_FADV_RANDOM);  // only advice
    }
    return file.value();
}

}  // namespace lockstep
