// SPDX-License-Identifier: Apache-2.0
// The programs' operator new, as the standard library's, but that what it throws says how much was
// asked for: "no more memory" alone helps nobody to find what is too large. Also of the libraries
// in the process, LibTorch among them; memory that is aligned beyond malloc's is left as it is.
#include "lockstep/core/refused_memory.hpp"

#include <algorithm>
#include <cstdlib>
#include <new>

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
