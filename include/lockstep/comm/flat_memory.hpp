// SPDX-License-Identifier: Apache-2.0
/// @file
/// The memory in which slots and values lie: the host's, or a GPU's.
#pragma once

#include <cstddef>

namespace lockstep {

/// The operations that fill slots and read sums. On a GPU they are work of the caller's stream, in
/// the order of that stream, and are finished only after wait().
class FlatMemory {
  public:
    virtual ~FlatMemory() = default;

    /// `count` floats from `at` become 0.
    virtual void clear(float* at, std::size_t count) = 0;

    /// into[i] += from[i] for i in [0, count).
    virtual void add(float* into, const float* from, std::size_t count) = 0;

    /// Either may be memory of the host, which stays until wait().
    virtual void copy(float* to, const float* from, std::size_t count) = 0;

    /// Until all of that and all other work of the caller's stream is done: the host may look.
    /// Errors: as Exchange::publish().
    virtual void wait() = 0;
};

/// Everything at once, by the calling thread.
FlatMemory& host_memory();

}  // namespace lockstep
