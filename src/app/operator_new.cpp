// SPDX-License-Identifier: Apache-2.0
// The programs' operator new. It equals the standard library's, except that its exception holds the
// size that was asked for: "no more memory" alone does not show what is too large. It also serves
// the libraries in the process, LibTorch among them. Memory that is aligned beyond malloc's is left
// to the standard.
#include "lockstep/core/error.hpp"

#include <algorithm>
#include <cstdlib>

void* operator new(std::size_t bytes) {
    while (true) {
        if (void* const memory = std::malloc(std::max<std::size_t>(bytes, 1))) return memory;
        const std::new_handler make_room = std::get_new_handler();
        if (make_room == nullptr) throw lockstep::RefusedMemory(bytes);
        make_room();
    }
}

void operator delete(void* memory) noexcept {
    std::free(memory);
}

void operator delete(void* memory, std::size_t) noexcept {
    std::free(memory);
}
