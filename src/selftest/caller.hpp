// SPDX-License-Identifier: Apache-2.0
// What all checks of NCCL stand on: the limits of their communicator, and a stream beside it.
#pragma once

#include "lockstep/comm/nccl_communicator.hpp"

#include "nccl/cuda_handles.hpp"

#include <chrono>
#include <memory>
#include <thread>
#include <utility>

namespace lockstep {

inline constexpr double start_limit_s = 60, sum_limit_s = 60, abort_limit_s = 10;

inline NcclOptions selftest_options(double collective_deadline_s) {
    NcclOptions options;
    options.name = "selftest";
    options.init_deadline_s = start_limit_s;
    options.collective_deadline_s = collective_deadline_s;
    options.abort_limit_s = abort_limit_s;
    return options;
}

/// A stream as autograd would have one, and copies on it.
class Caller {
  public:
    explicit Caller(std::shared_ptr<GpuRuntime> runtime)
        : runtime_(std::move(runtime)), stream_(make_stream(runtime_)) {}

    GpuStream stream() const { return stream_.value(); }
    const std::shared_ptr<GpuRuntime>& runtime() const { return runtime_; }

    void copy(void* to, const void* from, std::size_t bytes) const {
        check_cuda(runtime_->cuda(),
                   runtime_->cuda().copy_async(to, from, bytes, stream()),
                   "cudaMemcpyAsync");
    }
    void wait() const {
        const CudaEvent end = make_event(runtime_);
        check_cuda(runtime_->cuda(),
                   runtime_->cuda().record_event(end.value(), stream()),
                   "cudaEventRecord");
        CudaApi::Status status = CudaApi::not_ready;
        while (status == CudaApi::not_ready) {
            std::this_thread::sleep_for(std::chrono::microseconds(50));
            status = runtime_->cuda().query_event(end.value());
        }
        check_cuda(runtime_->cuda(), status, "cudaEventQuery");
    }

  private:
    std::shared_ptr<GpuRuntime> runtime_;
    CudaStream stream_;
};

}  // namespace lockstep
