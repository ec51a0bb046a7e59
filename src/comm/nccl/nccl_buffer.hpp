// SPDX-License-Identifier: Apache-2.0
// GPU memory that NCCL knows beforehand, where it can.
#pragma once

#include "nccl/nccl_inside.hpp"

#include <cstddef>
#include <memory>

namespace lockstep {

class RegisteredMemory;

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

    void* data() const;  ///< in GPU memory

    /// With the communicator: NCCL need not copy.
    bool is_registered() const { return registered_ != nullptr; }

  private:
    std::unique_ptr<RegisteredMemory> registered_;
    CudaMemory plain_;
};

}  // namespace lockstep
