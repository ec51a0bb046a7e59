// SPDX-License-Identifier: Apache-2.0
// Addresses of GPU memory, which no host may touch.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

namespace simcuda {

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

}  // namespace simcuda
