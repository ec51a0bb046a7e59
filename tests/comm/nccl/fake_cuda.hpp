// SPDX-License-Identifier: Apache-2.0
// A CUDA of host memory and virtual streams: work runs only when somebody looks at an event, later
// streams first, so that order which nobody asked for goes wrong.
#pragma once

#include "nccl/cuda_api.hpp"

#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::test {

/// The whole grid of the kernel, in an order that no GPU promises.
void run_on_host(const TreeSumLaunch& launch);

/// The GPUs of one test; threads act as its ranks. Everything happens under one lock.
class FakeCuda {
  public:
    /// True when it is done; called again later when not.
    using Task = std::function<bool()>;

    ~FakeCuda();

    /// The table of a rank whose only GPU is `gpu`.
    CudaApi api(const CudaDeviceFacts& gpu);

    void enqueue(GpuStream stream, Task task);
    /// Does `work` when the stream comes to it.
    template <class Work>
    void then(GpuStream stream, Work work) {
        enqueue(stream, [work = std::move(work)] {
            work();
            return true;
        });
    }
    GpuStream make_stream();

    /// A buffer from the fake's memory; frees itself through the table's `release`.
    std::shared_ptr<float> floats(std::size_t count);

    /// Whether all of [data, data + bytes) is allocated; if not, that is a violation.
    bool check_live(const void* data, std::size_t bytes, const std::string& who);

    void complain(const std::string& what);
    std::vector<std::string> violations();
    std::size_t live_allocations();
    std::recursive_mutex& mutex() { return mutex_; }

    int device_count = 1;
    bool is_refusing_locks = false;
    std::optional<std::string> gpu_refusing_kernels;  ///< its PCI address
    std::map<const void*, std::size_t> locked;        ///< pages of the host: bytes by address

  private:
    struct Stream {
        std::deque<Task> tasks;
    };
    struct Event {
        std::shared_ptr<bool> passed = std::make_shared<bool>(true);
    };

    void pump();
    bool run_some(Stream& stream);
    int allocate(void** memory, std::size_t bytes);
    int release(void* memory);
    void add_memory_functions(CudaApi& api);
    void add_event_functions(CudaApi& api);
    void sum(const TreeSumLaunch& launch);

    std::recursive_mutex mutex_;
    std::list<Stream> streams_;
    std::map<const void*, std::size_t> live_, freed_;
    std::vector<std::string> violations_;
};

}  // namespace lockstep::test
