// SPDX-License-Identifier: Apache-2.0
// Owners of CUDA's handles. None is freed after an abort that hangs: that would wait forever.
#pragma once

#include "lockstep/comm/gpu_runtime.hpp"

#include "nccl/cuda_api.hpp"

#include <cstddef>
#include <memory>
#include <utility>

namespace lockstep {

/// A handle and the function of the table that frees it. Null state: no handle. Move-only.
template <class Handle, auto free_it>
class CudaOwner {
  public:
    CudaOwner() = default;
    CudaOwner(std::shared_ptr<GpuRuntime> runtime, Handle handle)
        : runtime_(std::move(runtime)), handle_(handle) {}
    CudaOwner(CudaOwner&& other) noexcept
        : runtime_(std::move(other.runtime_)), handle_(std::exchange(other.handle_, nullptr)) {}
    CudaOwner& operator=(CudaOwner&& other) noexcept {
        std::swap(runtime_, other.runtime_);
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~CudaOwner() {
        if (handle_ != nullptr && !runtime_->is_wedged()) (runtime_->cuda().*free_it)(handle_);
    }
    Handle value() const { return handle_; }

  private:
    std::shared_ptr<GpuRuntime> runtime_;
    Handle handle_ = nullptr;
};

using CudaStream = CudaOwner<GpuStream, &CudaApi::destroy_stream>;
using CudaEvent = CudaOwner<CudaApi::Event, &CudaApi::destroy_event>;
using CudaMemory = CudaOwner<void*, &CudaApi::release>;

/// Makes a stream. Errors of all functions here: E681.
CudaStream make_stream(const std::shared_ptr<GpuRuntime>& runtime);
CudaEvent make_event(const std::shared_ptr<GpuRuntime>& runtime);
CudaMemory make_memory(const std::shared_ptr<GpuRuntime>& runtime, std::size_t bytes);

/// Copies in any direction, as work of `stream`; and sets GPU memory to zero.
void copy_async(
    const GpuRuntime& runtime, void* to, const void* from, std::size_t bytes, GpuStream stream);
void zero_async(const GpuRuntime& runtime, void* memory, std::size_t bytes, GpuStream stream);

/// Records in `event` the end of all present work of `stream`.
void record(const GpuRuntime& runtime, const CudaEvent& event, GpuStream stream);

/// Makes later work of `stream` wait for the last record of `event`.
void let_wait(const GpuRuntime& runtime, GpuStream stream, const CudaEvent& event);

/// Makes later work of `later` wait for the present work of `earlier`.
void let_wait(const std::shared_ptr<GpuRuntime>& runtime, GpuStream later, GpuStream earlier);

}  // namespace lockstep
