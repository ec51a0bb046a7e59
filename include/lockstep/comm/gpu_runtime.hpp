// SPDX-License-Identifier: Apache-2.0
/// @file
/// The GPU libraries of this process, and the abort of all work on them.
#pragma once

#include "lockstep/core/page_lock.hpp"

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace lockstep {

struct NcclApi;
struct CudaApi;
class NcclHandle;

using GpuStream = struct OpaqueGpuStream*;  ///< cudaStream_t, as c10::cuda::CUDAStream gives it

/// What became of each communicator when all were aborted.
struct AbortOutcome {
    std::vector<std::string> aborted;  ///< names
    std::vector<std::string> hung;     ///< did not come back within the limit
    double seconds = 0;                ///< until the last one came back, or the limit
    std::string text() const;  ///< "aborted 'gradients' in 12ms; 'metrics' hangs in its abort"
};

/// Shared by everything that uses a GPU; the last of them ends it.
class GpuRuntime : public std::enable_shared_from_this<GpuRuntime> {
  public:
    /// Loads liblockstep_cuda.so and the one NCCL, `nccl_path` or the first that is found, and
    /// says which. Errors: E670 no GPU, E671 no NCCL, E672 two of them.
    static std::shared_ptr<GpuRuntime> open(const std::string& nccl_path = {});

    /// Of function tables that are loaded already: tests bring made-up ones.
    GpuRuntime(std::unique_ptr<const NcclApi> nccl,
               std::unique_ptr<const CudaApi> cuda,
               std::string nccl_text);
    ~GpuRuntime();
    GpuRuntime(const GpuRuntime&) = delete;
    GpuRuntime& operator=(const GpuRuntime&) = delete;

    /// NCCL's functions; valid for the lifetime of this
    const NcclApi& nccl() const { return *nccl_; }
    const CudaApi& cuda() const { return *cuda_; }               ///< CUDA's
    const std::string& nccl_text() const { return nccl_text_; }  ///< "NCCL 2.28.9 (/path)"

    /// A C function of liblockstep_cuda.so. Errors: E670 if it has none of that name.
    void* function(const char* name) const;

    /// From any thread, once: raises the flag that stops all waiting and issuing, then aborts all
    /// communicators at once (one that is aborted alone may wait for another's kernel), each in a
    /// thread of its own. Returns after `limit_s` at the latest; the process must then end soon.
    AbortOutcome abort_all(double limit_s = 10);

    /// An abort did not come back: GPU resources are left to the end of the process, for freeing
    /// them would wait for a kernel that never ends.
    bool is_wedged() const { return is_wedged_; }

    /// The same if work on a stream does not end after an abort. Any thread.
    void leave_resources() { is_wedged_ = true; }

    /// Puts a communicator under abort_all(). It is forgotten when it dies.
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

/// Error E681 with CUDA's own text unless `status`, a cudaError_t, is success. `call`: whose it is.
void check_cuda(const GpuRuntime& runtime, int status, const char* call);

/// Locks host memory for copies by every GPU of this process; keeps `runtime`. Errors: E681.
PageLock gpu_page_lock(std::shared_ptr<const GpuRuntime> runtime);

}  // namespace lockstep
