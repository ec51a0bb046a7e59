// SPDX-License-Identifier: Apache-2.0
// Libraries that are loaded at run time, and the CUDA functions that Lockstep calls, as a table:
// filled by liblockstep_cuda.so or by a test's fake; and owners of CUDA's handles. None of these is
// freed after an abort that hangs: that would wait forever.
#pragma once

#include "nccl/nccl_types.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// Owns a dlopen handle. Null state: not loaded. Move-only.
class SharedLibrary {
  public:
    SharedLibrary() = default;
    SharedLibrary(SharedLibrary&& other) noexcept
        : handle_(std::exchange(other.handle_, nullptr)) {}
    SharedLibrary& operator=(SharedLibrary&& other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~SharedLibrary();

    /// Returns null if the loader fails; `reason` then holds the cause.
    static SharedLibrary open(const std::string& name, std::string& reason);
    /// Returns null unless the process has loaded it already.
    static SharedLibrary already_loaded(const std::string& name);

    explicit operator bool() const { return handle_ != nullptr; }
    void* symbol(const char* name) const;  ///< null if there is none
    std::string path() const;              ///< file of the library

  private:
    explicit SharedLibrary(void* handle) : handle_(handle) {}
    void* handle_ = nullptr;
};

/// Returns the files of this process's loaded libraries whose name begins with `prefix`, each once.
std::vector<std::string> loaded_libraries(const std::string& prefix);

struct TreeSumLaunch;

/// Identity and name of one GPU.
struct CudaDeviceFacts {
    std::string uuid;  ///< "GPU-1b2c...", as nvidia-smi prints it
    std::string pci;   ///< "0000:3b:00.0"
    std::string name;
    std::size_t memory_bytes = 0;
    int capability = 0;  ///< compute capability, of 8.6 the 8
};

/// Every function returns a cudaError_t: 0 is success.
struct CudaApi {
    using Status = int;
    using Stream = nccl::Stream;
    using Event = struct OpaqueEvent*;
    static constexpr Status success = 0, out_of_memory = 2, not_ready = 600;

    std::function<const char*(Status)> error_text;
    std::function<Status(int*)> device_count;
    std::function<Status(const char*, int*)> device_by_pci;  ///< creates no context
    std::function<Status(int)> set_device;
    std::function<Status(int*)> get_device;  ///< device of the calling thread
    std::function<Status(int, CudaDeviceFacts*)> device_facts;
    std::function<Status(void**, std::size_t)> allocate;
    std::function<Status(void*)> release;
    std::function<Status(void*, std::size_t)> lock_pages;  ///< host memory, for all GPUs
    std::function<Status(void*)> unlock_pages;
    std::function<Status(Stream*)> create_stream;  ///< non-blocking, of the highest priority
    std::function<Status(Stream)> destroy_stream;
    std::function<Status(Event*)> create_event;  ///< without timing
    std::function<Status(Event)> destroy_event;
    std::function<Status(Event, Stream)> record_event;
    std::function<Status(Event)> query_event;  ///< not_ready while earlier work is unfinished
    std::function<Status(Stream, Event)> stream_wait_event;
    std::function<Status(void*, const void*, std::size_t, Stream)> copy_async;  ///< any direction
    std::function<Status(void*, std::size_t, Stream)> zero_async;  ///< bytes of GPU memory
    /// Sets all bits of 4 bytes at each of `count` places, `apart` bytes from one to the next.
    std::function<Status(void*, std::size_t apart, std::size_t count, Stream)> mark_async;
    std::function<Status(const TreeSumLaunch&, Stream)> sum_in_tree_order;  ///< our own kernel
};

/// Throws E681 with CUDA's own text unless `status` is success; `call` is "cudaMalloc".
void check_cuda(const CudaApi& api, CudaApi::Status status, const char* call);

struct CudaLibrary {
    SharedLibrary library;
    CudaApi api;
    std::string path;
};

/// Returns a function of that library. Errors: E670 if it has none of that name.
void* function_in(const SharedLibrary& library, const char* name);

/// Loads the library beside the running program (lib/ or ../lib/), or LOCKSTEP_CUDA_LIB. Errors:
/// E670 no driver, no library, or one of another version of Lockstep.
CudaLibrary load_cuda();

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
