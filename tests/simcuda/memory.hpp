// SPDX-License-Identifier: Apache-2.0
// Memory of the simulated GPUs, at addresses that no host may touch, and which of the host's is
// page-locked.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

namespace simcuda {

/// What is in memory that nobody wrote, and in freed memory.
inline constexpr int poison = 0x7f;

/// Says what a program did that CUDA does not survive either, and ends it.
[[noreturn]] void die(const char* what);

/// Blocks of addresses at which nothing can be read or written: who takes a GPU's pointer for the
/// host's ends with a segmentation fault, as with CUDA. What they hold lies elsewhere:
///
///     [ addresses, PROT_NONE ........ ][ bytes ........................ ]
///        ^ the program's pointer          ^ behind(pointer), the simulation's
///
/// Not for several threads at once, but for behind().
class Arena {
  public:
    Arena();
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    /// Null where no addresses are left.
    void* take(std::size_t bytes);
    void give_back(void* block, std::size_t bytes);

    bool holds(const void* address) const;

    /// Where the host finds what `address` holds: elsewhere if it is a GPU's.
    template <class T>
    T* behind(T* address) const {
        if (!holds(address)) return address;
        const auto* const at = reinterpret_cast<const std::byte*>(address) + size;
        return reinterpret_cast<T*>(const_cast<std::byte*>(at));
    }

  private:
    static constexpr std::size_t size = std::size_t{1} << 36;

    std::byte* begin_ = nullptr;
    std::size_t used_ = 0;
    std::array<std::vector<void*>, 64> free_;  ///< by the exponent of their size
};

/// Any thread.
class Memory {
  public:
    /// Null where the GPU has not so much left.
    void* allocate(int device, std::size_t bytes);

    /// Aborts unless `data` is what allocate() gave.
    void release(void* data);

    /// Of the allocation that `data` lies in; aborts where [data, data + bytes) goes beyond it.
    std::optional<int> device_of(const void* data, std::size_t bytes = 0);

    /// What a GPU's memory holds, for the host; other addresses as they are.
    template <class T>
    T* behind(T* address) const {
        return arena_.behind(address);
    }

    /// The same for a kernel: aborts where it is memory of the host that no GPU reaches.
    template <class T>
    T* in_kernel(T* address) {
        if (address != nullptr && !arena_.holds(address) && !is_locked(address))
            die("a kernel is given memory of the host that is not page-locked");
        return behind(address);
    }

    std::size_t used(int device);

    bool lock(void* data, std::size_t bytes);
    bool unlock(void* data);
    bool is_locked(const void* data);

  private:
    struct Block {
        std::size_t bytes = 0;
        int device = 0;
    };

    Arena arena_;
    std::mutex mutex_;
    std::map<const std::byte*, Block> blocks_;
    std::map<const std::byte*, std::size_t> locked_;
    std::vector<std::size_t> used_;
};

}  // namespace simcuda
