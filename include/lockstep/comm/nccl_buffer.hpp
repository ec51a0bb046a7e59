// SPDX-License-Identifier: Apache-2.0
/// @file
/// GPU memory that NCCL knows beforehand, where it can.
#pragma once

#include "lockstep/comm/nccl_communicator.hpp"

#include <cstddef>
#include <memory>

namespace lockstep {

/// Owns memory from ncclMemAlloc, registered with the communicator, if every rank's NCCL can do
/// that (some with and some without is undefined); else from cudaMalloc. Goes before its
/// communicator is closed. Move-only.
class NcclBuffer {
  public:
    /// Collective. `bytes` on every rank. Errors: E630, E681.
    NcclBuffer(NcclCommunicator& communicator, std::size_t bytes);
    ~NcclBuffer();
    NcclBuffer(NcclBuffer&&) noexcept;
    NcclBuffer& operator=(NcclBuffer&&) noexcept;

    void* data() const;          ///< in GPU memory
    bool is_registered() const;  ///< with the communicator: NCCL need not copy

  private:
    class Memory;
    std::unique_ptr<Memory> memory_;
};

}  // namespace lockstep
