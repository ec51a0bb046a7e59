// SPDX-License-Identifier: Apache-2.0
#include "simcuda/arena.hpp"

#include "simcuda/memory.hpp"

#include <algorithm>
#include <bit>

#include <sys/mman.h>

namespace simcuda {
namespace {

constexpr std::size_t smallest = 512;  // to which CUDA's allocations are aligned

std::size_t rounded(std::size_t bytes) {
    return std::bit_ceil(std::max(bytes, smallest));
}

}  // namespace

Arena::Arena() {
    void* const both =
        ::mmap(nullptr, 2 * size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (both == MAP_FAILED) die("no addresses for the memory of GPUs (ulimit -v)");
    begin_ = static_cast<std::byte*>(both);
    if (::mprotect(begin_ + size, size, PROT_READ | PROT_WRITE) != 0)
        die("no memory for GPUs (vm.overcommit_memory)");
}

void* Arena::take(std::size_t bytes) {
    const std::size_t whole = rounded(bytes);
    auto& free = free_[static_cast<std::size_t>(std::countr_zero(whole))];
    if (!free.empty()) {
        void* const block = free.back();
        free.pop_back();
        return block;
    }
    if (whole > size - used_) return nullptr;
    used_ += whole;
    return begin_ + used_ - whole;
}

void Arena::give_back(void* block, std::size_t bytes) {
    free_[static_cast<std::size_t>(std::countr_zero(rounded(bytes)))].push_back(block);
}

bool Arena::holds(const void* address) const {
    const auto* const at = static_cast<const std::byte*>(address);
    return at >= begin_ && at < begin_ + size;
}

}  // namespace simcuda
