// SPDX-License-Identifier: Apache-2.0
/// @file
/// A failed allocation with its number of bytes.
#pragma once

#include <cstddef>
#include <new>

namespace lockstep {

/// The exception of operator new in Lockstep's programs (src/app/operator_new.cpp), because the
/// standard's holds no number. It becomes E225, as every std::bad_alloc does.
class RefusedMemory : public std::bad_alloc {
  public:
    /// `bytes` is the size that was asked for.
    explicit RefusedMemory(std::size_t bytes) : bytes_(bytes) {}

    /// Returns the size that was asked for.
    std::size_t bytes() const { return bytes_; }

  private:
    std::size_t bytes_;
};

}  // namespace lockstep
