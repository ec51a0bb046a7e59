// SPDX-License-Identifier: Apache-2.0
// The checks of the self-test. Single kernels on the first GPU against the CPU: the same bits or an
// error. The work of one rank with NCCL on the GPU.
#pragma once

#include "lockstep/comm/bootstrap.hpp"
#include "lockstep/comm/gpu_runtime.hpp"
#include "lockstep/comm/gpu_selection.hpp"

#include "nccl/cuda_api.hpp"

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <thread>

namespace lockstep {

/// A stream as autograd would have one, and copies on it.
class Caller {
  public:
    explicit Caller(const std::shared_ptr<GpuRuntime>& runtime)
        : runtime_(runtime), stream_(make_stream(runtime)) {}

    GpuStream stream() const { return stream_.value(); }

    void copy(void* to, const void* from, std::size_t bytes) const {
        copy_async(*runtime_, to, from, bytes, stream());
    }
    void wait() const {
        const CudaApi& cuda = runtime_->cuda();
        const CudaEvent end = make_event(runtime_);
        record(*runtime_, end, stream());
        CudaApi::Status status = CudaApi::not_ready;
        while (status == CudaApi::not_ready) {
            std::this_thread::sleep_for(std::chrono::microseconds(50));
            status = cuda.query_event(end.value());
        }
        check_cuda(cuda, status, "cudaEventQuery");
    }

  private:
    std::shared_ptr<GpuRuntime> runtime_;
    CudaStream stream_;
};

/// Collective. Known values of tensors of `counts` elements go through the exchange of training for
/// some steps, never waited for in between. Every sum must be exact: of whole numbers in the tree's
/// order and in NCCL's own, of 64-bit integers, and of gradients that have other bits in any other
/// order. Says what was done. Errors: E679 a wrong sum.
std::string check_sums(const std::shared_ptr<GpuRuntime>& runtime,
                       Bootstrap& bootstrap,
                       std::span<const std::size_t> counts);

/// Collective. Every rank selects `gpu` by its PCI address and reads it back; several of them must
/// all be refused, with two named. Says which GPU, or what was refused.
std::string check_selection(Bootstrap& bootstrap, const PlannedGpu& gpu);

/// Collective. The last rank kills itself; the others must give up within the limits and say so.
std::string survive_a_killed_rank(const std::shared_ptr<GpuRuntime>& runtime,
                                  Bootstrap& bootstrap,
                                  std::span<const std::size_t> counts);

/// Every step, both presets, both layouts, mixup and cutmix. Says what was done. Errors: E670 (no
/// GPU, or a library without transforms), E679 (other bits), E681.
std::string check_transforms();

/// Sums of squares over the whole range of floats, and with what is no number. Says what was done.
/// Errors: E670 (no GPU, or a library without the kernel), E679 (another sum), E681.
std::string check_norms();

}  // namespace lockstep
