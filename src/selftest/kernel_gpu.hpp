// SPDX-License-Identifier: Apache-2.0
// What checks of single kernels stand on: memory of the first GPU, and calls by name.
#pragma once

#include "lockstep/core/error.hpp"

#include "nccl/cuda_library.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace lockstep {

/// Memory on the GPU. Move-only; null state: moved from.
class DeviceMemory {
  public:
    DeviceMemory(const CudaApi& api, std::size_t bytes) : api_(api) {
        check_cuda(api_, api_.allocate(&memory_, std::max<std::size_t>(bytes, 1)), "cudaMalloc");
    }
    DeviceMemory(DeviceMemory&& other) noexcept
        : api_(other.api_), memory_(std::exchange(other.memory_, nullptr)) {}
    ~DeviceMemory() {
        if (memory_ != nullptr) api_.release(memory_);
    }

    template <class T>
    T* as() const {
        return static_cast<T*>(memory_);
    }

  private:
    const CudaApi& api_;
    void* memory_ = nullptr;
};

/// liblockstep_cuda.so's kernels on a stream of their own, of the first GPU.
class KernelGpu {
  public:
    KernelGpu() : cuda_(load_cuda()) {
        check_cuda(cuda_.api, cuda_.api.set_device(0), "cudaSetDevice");
        check_cuda(cuda_.api, cuda_.api.create_stream(&stream_), "cudaStreamCreate");
    }
    ~KernelGpu() { cuda_.api.destroy_stream(stream_); }
    KernelGpu(const KernelGpu&) = delete;
    KernelGpu& operator=(const KernelGpu&) = delete;

    DeviceMemory memory(std::size_t bytes) const { return {cuda_.api, bytes}; }

    template <class T>
    DeviceMemory copy_of(std::span<const T> values) const {
        DeviceMemory memory(cuda_.api, values.size_bytes());
        copy(memory.as<void>(), values.data(), values.size_bytes());
        return memory;
    }

    template <class T>
    std::vector<T> values(const DeviceMemory& memory, std::size_t count) const {
        std::vector<T> values(count);
        copy(values.data(), memory.as<void>(), count * sizeof(T));
        return values;
    }

    /// Calls the entry point, with the stream as its last argument.
    template <class EntryPoint, class... Arguments>
    void run(const char* name, Arguments... arguments) const {
        const auto entry = reinterpret_cast<EntryPoint>(symbol(name));
        check_cuda(cuda_.api, entry(arguments..., stream_), name);
    }

  private:
    void copy(void* to, const void* from, std::size_t bytes) const {
        check_cuda(cuda_.api, cuda_.api.copy_async(to, from, bytes, stream_), "cudaMemcpyAsync");
        wait();
    }
    void wait() const {
        CudaApi::Event end = nullptr;
        check_cuda(cuda_.api, cuda_.api.create_event(&end), "cudaEventCreate");
        check_cuda(cuda_.api, cuda_.api.record_event(end, stream_), "cudaEventRecord");
        CudaApi::Status status = CudaApi::not_ready;
        while (status == CudaApi::not_ready) {
            std::this_thread::sleep_for(std::chrono::microseconds(50));
            status = cuda_.api.query_event(end);
        }
        cuda_.api.destroy_event(end);
        check_cuda(cuda_.api, status, "cudaEventQuery");
    }
    void* symbol(const char* name) const {
        void* address = cuda_.library.symbol(name);
        check(address != nullptr, [&] {
            return Error("E670",
                         fmt::format("'{}' has no function {}", cuda_.path, name),
                         "it was built without Lockstep's kernels",
                         "reinstall Lockstep, or unset LOCKSTEP_CUDA_LIB");
        });
        return address;
    }

    CudaLibrary cuda_;
    CudaApi::Stream stream_ = nullptr;
};

}  // namespace lockstep
