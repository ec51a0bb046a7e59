// SPDX-License-Identifier: Apache-2.0
/// @file
/// The GPU libraries of this process, and the abort of all work on them.
#pragma once

#include "lockstep/core/pages.hpp"

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace lockstep {

struct NcclApi;
struct CudaApi;
class NcclHandle;

using GpuStream = struct OpaqueGpuStream*;  ///< cudaStream_t, as returned by c10::cuda::CUDAStream

/// The result of aborting all communicators.
struct AbortOutcome {
    std::vector<std::string> aborted;  ///< names
    std::vector<std::string> hung;     ///< names of those that did not return within the limit
    double seconds = 0;                ///< time until the last one returned, or the limit
    std::string text() const;  ///< "aborted 'gradients' in 12ms; 'metrics' hangs in its abort"
};

/// The GPU libraries, shared by everything that uses a GPU; the last user unloads them.
class GpuRuntime : public std::enable_shared_from_this<GpuRuntime> {
  public:
    /// Loads liblockstep_cuda.so and NCCL: `nccl_path` or the first that is found, which is logged.
    /// Errors: E670 no GPU, E671 no NCCL, E672 two NCCL libraries.
    static std::shared_ptr<GpuRuntime> open(const std::string& nccl_path = {});

    /// Uses function tables that are already loaded: tests bring made-up ones.
    GpuRuntime(std::unique_ptr<const NcclApi> nccl,
               std::unique_ptr<const CudaApi> cuda,
               std::string nccl_text);
    ~GpuRuntime();
    GpuRuntime& operator=(GpuRuntime&&) = delete;

    /// Returns NCCL's functions, valid for the lifetime of this.
    const NcclApi& nccl() const { return *nccl_; }
    const CudaApi& cuda() const { return *cuda_; }               ///< CUDA's functions
    const std::string& nccl_text() const { return nccl_text_; }  ///< "NCCL 2.28.9 (/path)"

    /// Returns a C function of liblockstep_cuda.so. Errors: E670 if it has none of that name.
    void* function(const char* name) const;

    /// Raises the flag that stops all waiting and issuing, then aborts all communicators at once,
    /// each in a thread of its own: one that is aborted alone may wait for another's kernel. Any
    /// thread, once. Returns after `limit_s` at the latest; the process must then end soon.
    AbortOutcome abort_all(double limit_s = 10);

    /// Returns true if an abort did not return. GPU resources are then left to the end of the
    /// process, because freeing them would wait for a kernel that never ends.
    bool is_wedged() const { return is_wedged_; }

    /// Leaves GPU resources in the same way if work on a stream does not end after an abort. Any
    /// thread.
    void leave_resources() { is_wedged_ = true; }

    /// Adds a communicator to those that abort_all() aborts, until it is destroyed.
    void add(const std::shared_ptr<NcclHandle>& handle);

  private:
    struct Libraries;
    std::unique_ptr<Libraries> libraries_;
    std::unique_ptr<const NcclApi> nccl_;
    std::unique_ptr<const CudaApi> cuda_;
    std::string nccl_text_;
    std::atomic<bool> is_aborting_ = false, is_wedged_ = false;
    std::mutex mutex_;
    std::vector<std::weak_ptr<NcclHandle>> handles_;
};

/// Throws E681 with CUDA's own text unless `status`, a cudaError_t, is success. `call`: name of the
/// CUDA function.
void check_cuda(const GpuRuntime& runtime, int status, const char* call);

/// Locks host memory for copies by every GPU of this process; keeps `runtime` alive. Errors: E681.
PageLock gpu_page_lock(std::shared_ptr<const GpuRuntime> runtime);

}  // namespace lockstep
