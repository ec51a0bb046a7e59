// SPDX-License-Identifier: Apache-2.0
#include "memory.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/refused_memory.hpp"

#include <sys/mman.h>

namespace lockstep {

Memory::Memory(std::uint64_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    void* const pages =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(pages != MAP_FAILED, [&] { return as_error(RefusedMemory(bytes)); });
    data_ = static_cast<std::byte*>(pages);
    // Rows are gathered from all over it: fewer, larger pages miss the TLB less. Only advice.
    ::madvise(pages, bytes, MADV_HUGEPAGE);
}

Memory& Memory::operator=(Memory&& other) noexcept {
    if (this != &other) {
        reset();
        data_ = std::exchange(other.data_, nullptr);
        bytes_ = std::exchange(other.bytes_, 0);
    }
    return *this;
}

void Memory::reset() {
    if (data_) ::munmap(data_, bytes_);
    data_ = nullptr;
    bytes_ = 0;
}

std::uint64_t row_memory(const DatasetIndex& index, std::uint64_t rows) {
    std::uint64_t bytes = 0;
    for (const Field& field : index.fields()) bytes += aligned(rows * field.bytes_per_sample());
    return bytes;
}

std::vector<std::span<std::byte>> divided(const DatasetIndex& index,
                                          std::uint64_t rows,
                                          std::span<std::byte> memory) {
    std::vector<std::span<std::byte>> fields;
    for (const Field& field : index.fields()) {
        const std::uint64_t bytes = rows * field.bytes_per_sample();
        fields.push_back(memory.first(bytes));
        memory = memory.subspan(aligned(bytes));
    }
    return fields;
}

}  // namespace lockstep
