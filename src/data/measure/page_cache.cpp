// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/files.hpp"
#include "lockstep/data/measure_io.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace lockstep {
namespace {

std::uint64_t resident_pages(int fd, std::uint64_t bytes, std::uint64_t page) {
    void* const map = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) return 0;
    std::vector<unsigned char> pages((bytes + page - 1) / page);
    std::uint64_t resident = 0;
    if (::mincore(map, bytes, pages.data()) == 0)
        for (const unsigned char flags : pages) resident += flags & 1u;
    ::munmap(map, bytes);
    return resident;
}

}  // namespace

double drop_page_cache(const DatasetIndex& index) {
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    std::uint64_t resident = 0, pages = 0;
    for (const Shard& shard : index.shards()) {
        if (shard.bytes == 0) continue;
        const UniqueFd file = open_for_reading(path_beneath(index.path(), shard.name));
        ::fdatasync(file.value());
        ::posix_fadvise(file.value(), 0, 0, POSIX_FADV_DONTNEED);
        resident += resident_pages(file.value(), shard.bytes, page);
        pages += (shard.bytes + page - 1) / page;
    }
    return pages == 0 ? 0 : static_cast<double>(resident) / static_cast<double>(pages);
}

}  // namespace lockstep
