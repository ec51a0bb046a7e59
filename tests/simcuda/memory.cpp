// SPDX-License-Identifier: Apache-2.0
#include "simcuda/memory.hpp"

#include "simcuda/settings.hpp"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <sys/mman.h>

namespace simcuda {
namespace {

constexpr std::size_t smallest = 512;  // to which CUDA's allocations are aligned

std::size_t rounded(std::size_t bytes) {
    return std::bit_ceil(std::max(bytes, smallest));
}

/// Of the element that holds `data`, or the end.
template <class Map>
auto holding(Map& map, const void* data) {
    const auto above = map.upper_bound(static_cast<const std::byte*>(data));
    return above == map.begin() ? map.end() : std::prev(above);
}

}  // namespace

void die(const char* what) {
    std::fprintf(stderr, "simcuda: %s\n", what);
    std::abort();
}

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

void* Memory::allocate(int device, std::size_t bytes) {
    const std::size_t most = settings().memory;
    const auto index = static_cast<std::size_t>(device);
    const std::lock_guard lock(mutex_);
    used_.resize(static_cast<std::size_t>(device_count()));
    if (bytes > most || used_[index] > most - bytes) return nullptr;
    void* const data = arena_.take(bytes);
    if (data == nullptr) return nullptr;
    std::memset(behind(data), poison, bytes);
    used_[index] += bytes;
    blocks_[static_cast<const std::byte*>(data)] = {bytes, device};
    return data;
}

void Memory::release(void* data) {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(static_cast<const std::byte*>(data));
    if (found == blocks_.end()) die("freed what is not allocated on a GPU");
    const std::size_t bytes = found->second.bytes;
    std::memset(behind(data), poison, bytes);
    used_[static_cast<std::size_t>(found->second.device)] -= bytes;
    arena_.give_back(data, bytes);
    blocks_.erase(found);
}

std::optional<int> Memory::device_of(const void* data, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto found = holding(blocks_, data);
    if (found == blocks_.end()) return {};
    const auto offset =
        static_cast<std::size_t>(static_cast<const std::byte*>(data) - found->first);
    if (offset >= found->second.bytes) return {};
    if (offset + bytes > found->second.bytes) die("work goes beyond an allocation");
    return found->second.device;
}

std::size_t Memory::used(int device) {
    const std::lock_guard lock(mutex_);
    const auto index = static_cast<std::size_t>(device);
    return index < used_.size() ? used_[index] : 0;
}

bool Memory::lock(void* data, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    return locked_.emplace(static_cast<const std::byte*>(data), bytes).second;
}

bool Memory::unlock(void* data) {
    const std::lock_guard lock(mutex_);
    return locked_.erase(static_cast<const std::byte*>(data)) == 1;
}

bool Memory::is_locked(const void* data) {
    const std::lock_guard lock(mutex_);
    const auto found = holding(locked_, data);
    return found != locked_.end() &&
           static_cast<const std::byte*>(data) < found->first + found->second;
}

}  // namespace simcuda
