// SPDX-License-Identifier: Apache-2.0
/// @file
/// A refusal of memory with the number of bytes.
#pragma once

#include <cstddef>
#include <new>

namespace lockstep {

/// What operator new throws in Lockstep's programs (src/app/operator_new.cpp); the standard's says
/// nothing. E225, as any std::bad_alloc is.
class RefusedMemory : public std::bad_alloc {
  public:
    /// That were asked for.
    explicit RefusedMemory(std::size_t bytes) : bytes_(bytes) {}

    /// What was asked for.
    std::size_t bytes() const { return bytes_; }

  private:
    std::size_t bytes_;
};

}  // namespace lockstep
