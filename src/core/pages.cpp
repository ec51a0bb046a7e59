// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/pages.hpp"

#include "lockstep/core/error.hpp"

#include <sys/mman.h>

namespace lockstep {

Pages::Pages(std::uint64_t bytes) {
    if (bytes == 0) return;
    void* const pages =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(pages != MAP_FAILED, [&] { return as_error(RefusedMemory(bytes)); });
    bytes_ = {static_cast<std::byte*>(pages), bytes};
    // Rows are gathered from all over it: fewer, larger pages miss the TLB less. Only advice.
    ::madvise(pages, bytes, MADV_HUGEPAGE);
}

Pages& Pages::operator=(Pages&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
}

Pages::~Pages() {
    if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

}  // namespace lockstep
