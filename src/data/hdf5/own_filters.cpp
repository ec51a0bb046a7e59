// SPDX-License-Identifier: Apache-2.0
#include "own_filters.hpp"

#include "lockstep/data/filters.hpp"

#include "format/chunk_filters.hpp"
#include "format/expansion.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

#include <hdf5.h>

namespace lockstep {
namespace {

// H5Z_func_t: puts what is stored in `*buffer` into a new one; 0 where that fails, without a word
// to say why. Nothing is written by this filter.
std::size_t undo_lzf(unsigned flags,
                     std::size_t,
                     const unsigned*,
                     std::size_t bytes,
                     std::size_t* room,
                     void** buffer) {
    if ((flags & H5Z_FLAG_REVERSE) == 0) return 0;
    const std::span stored(static_cast<const std::byte*>(*buffer), bytes);
    const std::uint64_t size = lzf_bytes(stored);
    if (size == 0 || size > most_chunk_bytes) return 0;
    void* const made = H5allocate_memory(size, false);
    if (made == nullptr) return 0;
    if (!decode_lzf(stored, {static_cast<std::byte*>(made), size})) {
        H5free_memory(made);
        return 0;
    }
    H5free_memory(*buffer);
    *buffer = made;
    *room = size;
    return size;
}

}  // namespace

void register_own_filters() {
    const H5Z_class2_t filter{H5Z_CLASS_T_VERS,
                              static_cast<H5Z_filter_t>(FilterKind::lzf),
                              0,
                              1,
                              "lzf",
                              nullptr,
                              nullptr,
                              undo_lzf};
    H5Zregister(&filter);
}

}  // namespace lockstep
