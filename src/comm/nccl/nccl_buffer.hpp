// SPDX-License-Identifier: Apache-2.0
// GPU memory that is registered with NCCL, if possible.
#pragma once

#include "nccl/nccl_inside.hpp"

#include <cstddef>
#include <memory>

namespace lockstep {

class RegisteredMemory;

/// Owns memory from ncclMemAlloc, registered with the communicator, if every rank's NCCL supports
/// that (a mixture is undefined); else from cudaMalloc. It must be destroyed before its
/// communicator is closed. Move-only.
class NcclBuffer {
  public:
    /// Collective. Allocates `bytes` on every rank. Errors: E630, E681.
    NcclBuffer(NcclCommunicator& communicator, std::size_t bytes);
    ~NcclBuffer();
    NcclBuffer(NcclBuffer&&) noexcept;
    NcclBuffer& operator=(NcclBuffer&&) noexcept;

    void* data() const;  ///< in GPU memory

    /// Returns true if it is registered with the communicator: then NCCL need not copy.
    bool is_registered() const { return registered_ != nullptr; }

  private:
    std::unique_ptr<RegisteredMemory> registered_;
    CudaMemory plain_;
};

}  // namespace lockstep
