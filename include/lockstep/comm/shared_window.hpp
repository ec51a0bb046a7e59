// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory that all ranks of a node share.
#pragma once

#include "lockstep/comm/communicator.hpp"

#include <cstddef>

#include <mpi.h>

namespace lockstep {

/// Checks that /dev/shm of this node has room for a window. Errors: E632.
void check_shared_room(std::size_t bytes);

/// Owns an MPI shared-memory window. The bytes are zero, begin at a page boundary and have a
/// different address in each rank. Freed collectively.
class SharedWindow {
  public:
    /// Collective over ranks of one node; a single rank gets private memory, not zeroed. Errors:
    /// E632 if there is no room.
    SharedWindow(const Communicator& ranks, std::size_t bytes);
    ~SharedWindow();
    SharedWindow& operator=(SharedWindow&&) = delete;

    std::byte* data() const { return data_; }  ///< this rank's address of the shared bytes

  private:
    Communicator ranks_;  ///< outlives the window
    MPI_Win window_ = MPI_WIN_NULL;
    std::byte* data_ = nullptr;
};

}  // namespace lockstep
