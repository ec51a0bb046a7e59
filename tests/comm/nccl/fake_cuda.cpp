// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/fake_cuda.hpp"

#include "nccl/tree_sum.hpp"

#include <cstdlib>
#include <cstring>

namespace lockstep::test {
namespace {

using Lock = std::lock_guard<std::recursive_mutex>;

constexpr int invalid_value = 1;
constexpr int poison = 0xee;
constexpr std::size_t alignment = 256;  // as of cudaMalloc

template <class T, class Handle>
T& deref(Handle handle) {
    return *reinterpret_cast<T*>(handle);
}

/// A function of the table that does `work`, and succeeds.
template <class Work>
auto succeeding(Work work) {
    return [work = std::move(work)](auto... arguments) {
        work(arguments...);
        return CudaApi::success;
    };
}

}  // namespace

void run_on_host(const TreeSumLaunch& launch) {
    const std::int64_t blocks = blocks_for(launch.count);
    for (std::int64_t block = blocks; block-- > 0;)
        for (int thread = threads_of_block; thread-- > 0;)
            tree_sum_thread(launch, block, thread, blocks, threads_of_block);
}

FakeCuda::~FakeCuda() {
    for (const auto* memory : {&live_, &freed_})
        for (const auto& [data, bytes] : *memory) std::free(const_cast<void*>(data));
}

bool FakeCuda::run_some(Stream& stream) {
    bool moved = false;
    while (!stream.tasks.empty() && stream.tasks.front()()) {
        stream.tasks.pop_front();
        moved = true;
    }
    return moved;
}

void FakeCuda::pump() {
    for (bool moved = true; moved;) {
        moved = false;
        for (auto stream = streams_.rbegin(); stream != streams_.rend(); ++stream)
            moved |= run_some(*stream);
    }
}

void FakeCuda::enqueue(GpuStream stream, Task task) {
    const Lock lock(mutex_);
    deref<Stream>(stream).tasks.push_back(std::move(task));
}

GpuStream FakeCuda::make_stream() {
    const Lock lock(mutex_);
    return reinterpret_cast<GpuStream>(&streams_.emplace_back());
}

int FakeCuda::allocate(void** memory, std::size_t bytes) {
    const Lock lock(mutex_);
    *memory = std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment);
    std::memset(*memory, poison, bytes);
    live_[*memory] = bytes;
    return CudaApi::success;
}

/// Freed memory is kept, full of poison, so that a late use is seen and harmless.
int FakeCuda::release(void* memory) {
    const Lock lock(mutex_);
    const auto found = live_.find(memory);
    if (found == live_.end()) {
        complain("freed what is not allocated");
        return invalid_value;
    }
    std::memset(memory, poison, found->second);
    freed_.insert(live_.extract(found));
    return CudaApi::success;
}

std::shared_ptr<float> FakeCuda::floats(std::size_t count) {
    void* memory = nullptr;
    allocate(&memory, count * sizeof(float));
    return {static_cast<float*>(memory), [this](float* data) { release(data); }};
}

bool FakeCuda::check_live(const void* data, std::size_t bytes, const std::string& who) {
    const Lock lock(mutex_);
    auto above = live_.upper_bound(data);
    if (above != live_.begin()) {
        const auto& [begin, size] = *--above;
        if (static_cast<const char*>(data) + bytes <= static_cast<const char*>(begin) + size)
            return true;
    }
    complain(who + " uses memory that is not allocated");
    return false;
}

void FakeCuda::complain(const std::string& what) {
    const Lock lock(mutex_);
    violations_.push_back(what);
}

std::vector<std::string> FakeCuda::violations() {
    const Lock lock(mutex_);
    return violations_;
}

std::size_t FakeCuda::live_allocations() {
    const Lock lock(mutex_);
    return live_.size();
}

void FakeCuda::add_memory_functions(CudaApi& api) {
    api.allocate = [this](void** memory, std::size_t bytes) { return allocate(memory, bytes); };
    api.release = [this](void* memory) { return release(memory); };
    api.copy_async = succeeding([this](void* to, const void* from, std::size_t bytes, auto stream) {
        then(stream, [=] { std::memcpy(to, from, bytes); });
    });
    api.zero_async = succeeding([this](void* memory, std::size_t bytes, GpuStream stream) {
        then(stream, [=, this] {
            if (check_live(memory, bytes, "cudaMemsetAsync")) std::memset(memory, 0, bytes);
        });
    });
    api.mark_async =
        succeeding([this](void* first, std::size_t apart, std::size_t count, GpuStream stream) {
            then(stream, [=, this] {
                if (check_live(first, (count - 1) * apart + 4, "cudaMemset2DAsync"))
                    for (std::size_t i = 0; i < count; ++i)
                        std::memset(static_cast<char*>(first) + i * apart, 0xff, 4);
            });
        });
    api.lock_pages = [this](void* memory, std::size_t bytes) {
        const Lock lock(mutex_);
        if (is_refusing_locks) return invalid_value;
        locked[memory] = bytes;
        return CudaApi::success;
    };
    api.unlock_pages = [this](void* memory) {
        const Lock lock(mutex_);
        return locked.erase(memory) == 1 ? CudaApi::success : invalid_value;
    };
    api.create_stream = succeeding([this](GpuStream* stream) { *stream = make_stream(); });
    api.destroy_stream = succeeding([](GpuStream) {});  // what is queued still runs, as in CUDA
}

void FakeCuda::add_event_functions(CudaApi& api) {
    api.create_event = succeeding(
        [](CudaApi::Event* event) { *event = reinterpret_cast<CudaApi::Event>(new Event); });
    api.destroy_event = succeeding([](CudaApi::Event event) { delete &deref<Event>(event); });
    api.record_event = succeeding([this](CudaApi::Event event, GpuStream stream) {
        const Lock lock(mutex_);
        auto passed = std::make_shared<bool>(false);
        deref<Event>(event).passed = passed;
        enqueue(stream, [passed] { return *passed = true; });
    });
    api.query_event = [this](CudaApi::Event event) {
        const Lock lock(mutex_);
        pump();
        return *deref<Event>(event).passed ? CudaApi::success : CudaApi::not_ready;
    };
    api.stream_wait_event = succeeding([this](GpuStream stream, CudaApi::Event event) {
        const Lock lock(mutex_);
        enqueue(stream, [passed = deref<Event>(event).passed] { return *passed; });
    });
}

/// Of a real kernel nothing but wrong bits would tell that it read what is not there.
void FakeCuda::sum(const TreeSumLaunch& launch) {
    const auto is_live = [&](const float* data, std::int64_t pitch, std::int64_t vectors) {
        const std::int64_t floats = (vectors - 1) * pitch + launch.count;
        return vectors == 0 ||
               check_live(data, static_cast<std::size_t>(floats) * sizeof(float), "a tree sum");
    };
    if (is_live(launch.own, launch.own_pitch, launch.own_count) &&
        is_live(launch.received, launch.received_pitch, launch.partials - launch.own_count) &&
        is_live(launch.out, 0, 1) &&
        check_live(launch.merges_after,
                   static_cast<std::size_t>(launch.partials) * sizeof(int),
                   "a tree sum"))
        run_on_host(launch);
}

CudaApi FakeCuda::api(const CudaDeviceFacts& gpu) {
    CudaApi api;
    api.error_text = [](int) { return "a fake error"; };
    api.device_count = succeeding([this](int* count) { *count = device_count; });
    api.device_by_pci = [gpu](const char* pci, int* device) {
        *device = 0;
        return gpu.pci == pci ? CudaApi::success : invalid_value;
    };
    api.set_device = succeeding([](int) {});
    api.get_device = succeeding([](int* device) { *device = 0; });
    api.device_facts = succeeding([gpu](int, CudaDeviceFacts* facts) { *facts = gpu; });
    api.sum_in_tree_order = [this, pci = gpu.pci](const TreeSumLaunch& launch, GpuStream stream) {
        if (gpu_refusing_kernels == pci) return invalid_value;
        then(stream, [this, launch] { sum(launch); });
        return CudaApi::success;
    };
    add_memory_functions(api);
    add_event_functions(api);
    return api;
}

}  // namespace lockstep::test
