// SPDX-License-Identifier: Apache-2.0
// liblockstep_cuda.so: the table of CUDA's functions, and the entry points of its kernels, which
// are their host source.
#include "lockstep/comm/exact_words.hpp"
#include "lockstep/core/host_device.hpp"
#include "lockstep/core/version.hpp"

#include "nccl/cuda_api.hpp"
#include "nccl/tree_sum.hpp"
#include "replica/update_launch.hpp"
#include "simcuda/machine.hpp"
#include "simcuda/settings.hpp"
#include "transform/kernel_body.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include <unistd.h>

namespace simcuda {
namespace {

using namespace lockstep;
using exact::SquaresLaunch;
using Status = CudaApi::Status;

constexpr Status invalid_value = 1, out_of_memory = 2, invalid_device = 101;

const char* error_text(Status status) {
    static const std::map<Status, const char*> texts = {{CudaApi::success, "no error"},
                                                        {invalid_value, "invalid argument"},
                                                        {out_of_memory, "out of memory"},
                                                        {invalid_device, "invalid device ordinal"},
                                                        {CudaApi::not_ready, "device not ready"}};
    const auto found = texts.find(status);
    return found == texts.end() ? "unspecified launch failure" : found->second;
}

/// A call that fails when the GPU is lost. One without a result succeeds otherwise.
template <class Call>
auto counted(Call call) {
    return [call](auto... arguments) -> Status {
        if (const Status lost = fault_of_call()) return lost;
        if constexpr (std::is_void_v<decltype(call(arguments...))>) {
            call(arguments...);
            return CudaApi::success;
        } else {
            return call(arguments...);
        }
    };
}

Event& of(CudaApi::Event event) {
    return *reinterpret_cast<Event*>(event);
}

bool is_device(int device) {
    return device >= 0 && device < device_count();
}

void add_devices(CudaApi& api) {
    api.error_text = error_text;
    api.device_count = counted([](int* count) { *count = device_count(); });
    api.device_by_pci = counted([](const char* pci, int* device) {
        for (*device = 0; *device < device_count(); ++*device)
            if (pci_of(gpu_of_device(*device)) == pci) return CudaApi::success;
        return invalid_value;
    });
    api.set_device = counted([](int device) {
        if (!is_device(device)) return invalid_device;
        Machine::set_device(device);
        machine().make_context(device);
        return CudaApi::success;
    });
    api.get_device = counted([](int* device) { *device = Machine::device(); });
    api.device_facts = counted([](int device, CudaDeviceFacts* facts) {
        if (!is_device(device)) return invalid_device;
        const int gpu = gpu_of_device(device);
        *facts = {uuid_of(gpu), pci_of(gpu), gpu_name, settings().memory, settings().capability};
        return CudaApi::success;
    });
}

Status allocate(void** data, std::size_t bytes) {
    *data = nullptr;
    if (bytes > 0) *data = machine().allocate(Machine::device(), bytes);
    return bytes == 0 || *data != nullptr ? CudaApi::success : out_of_memory;
}

/// cudaFree waits for the whole device.
Status release(void* data) {
    if (data == nullptr) return CudaApi::success;
    const auto device = machine().memory.device_of(data);
    machine().synchronize(device.value_or(Machine::device()));
    machine().memory.release(data);
    return CudaApi::success;
}

bool is_pageable(const void* data, std::size_t bytes) {
    Memory& memory = machine().memory;
    return !memory.device_of(data, bytes) && !memory.is_locked(data);
}

/// CUDA's rules: pageable memory is read before the call returns, and waited for when written.
Status copy_async(void* to, const void* from, std::size_t bytes, CudaApi::Stream handle) {
    if (bytes == 0) return CudaApi::success;
    Stream& stream = stream_of(handle);
    const Memory& memory = machine().memory;
    void* const into = memory.behind(to);
    const void* const source = memory.behind(from);
    if (is_pageable(from, bytes)) {
        const auto* const begin = static_cast<const std::byte*>(from);
        const auto staged = std::make_shared<std::vector<std::byte>>(begin, begin + bytes);
        stream.enqueue([=] { std::memcpy(into, staged->data(), bytes); });
    } else {
        stream.enqueue([=] { std::memmove(into, source, bytes); });
    }
    if (!is_pageable(to, bytes)) return CudaApi::success;
    note_wait_of_host();
    stream.drain();
    return CudaApi::success;
}

Status zero_async(void* data, std::size_t bytes, CudaApi::Stream handle) {
    if (bytes == 0) return CudaApi::success;
    if (!machine().memory.device_of(data, bytes)) return invalid_value;
    stream_of(handle).enqueue(
        [bytes, at = machine().memory.behind(data)] { std::memset(at, 0, bytes); });
    return CudaApi::success;
}

Status mark_async(void* first, std::size_t apart, std::size_t count, CudaApi::Stream handle) {
    auto* const at = static_cast<std::byte*>(first);
    if (!machine().memory.device_of(first, (count - 1) * apart + 4)) return invalid_value;
    stream_of(handle).enqueue([apart, count, at = machine().memory.behind(at)] {
        for (std::size_t i = 0; i < count; ++i) std::memset(at + i * apart, 0xff, 4);
    });
    return CudaApi::success;
}

void add_memory(CudaApi& api) {
    api.allocate = counted(allocate);
    api.release = counted(release);
    api.copy_async = counted(copy_async);
    api.zero_async = counted(zero_async);
    api.mark_async = counted(mark_async);
    api.lock_pages = counted([](void* data, std::size_t bytes) {
        return machine().memory.lock(data, bytes) ? CudaApi::success : invalid_value;
    });
    api.unlock_pages = counted([](void* data) {
        return machine().memory.unlock(data) ? CudaApi::success : invalid_value;
    });
}

void add_streams(CudaApi& api) {
    api.create_stream = counted([](CudaApi::Stream* stream) {
        *stream = reinterpret_cast<CudaApi::Stream>(&machine().make_stream(Machine::device()));
    });
    api.destroy_stream =
        counted([](CudaApi::Stream stream) { machine().end_stream(stream_of(stream)); });
    api.create_event = counted(
        [](CudaApi::Event* event) { *event = reinterpret_cast<CudaApi::Event>(new Event); });
    api.destroy_event = counted([](CudaApi::Event event) { delete &of(event); });
    api.record_event = counted(
        [](CudaApi::Event event, CudaApi::Stream stream) { of(event).record(stream_of(stream)); });
    api.query_event = [](CudaApi::Event event) -> Status {
        if (const Status lost = fault_of_poll()) return lost;
        return of(event).has_passed() ? CudaApi::success : CudaApi::not_ready;
    };
    api.stream_wait_event = counted([](CudaApi::Stream stream, CudaApi::Event event) {
        if (!is_dropped_wait()) of(event).hold(stream_of(stream));
    });
}

/// Turns a GPU's pointers in a launch into the host's.
template <class... Pointers>
void reach(Pointers&... pointers) {
    ((pointers = machine().memory.in_kernel(pointers)), ...);
}

/// Enqueues all threads of a grid. The last one comes first: no order between threads is promised.
template <class Thread>
void run_blocks(std::int64_t blocks, const Thread& thread, void* stream) {
    note_launch();
    stream_of(stream).enqueue([=] {
        for (std::int64_t block = blocks; block-- > 0;)
            for (int i = threads_of_block; i-- > 0;) thread(block, i, blocks);
    });
}

/// One of `threads` threads of one of `blocks` blocks.
template <class Launch>
using KernelThread =
    void (*)(const Launch&, std::int64_t block, int thread, std::int64_t blocks, int threads);

/// Enqueues the whole grid for `elements`; the launch is copied, as a kernel's arguments are.
template <class Launch>
void run_kernel(const Launch& launch,
                std::int64_t elements,
                KernelThread<Launch> thread,
                void* stream) {
    run_blocks(
        blocks_for(elements),
        [=](std::int64_t block, int i, std::int64_t blocks) {
            thread(launch, block, i, blocks, threads_of_block);
        },
        stream);
}

void add_sums(CudaApi& api) {
    api.sum_in_tree_order = counted([](TreeSumLaunch launch, CudaApi::Stream stream) {
        reach(launch.own, launch.received, launch.merges_after, launch.out);
        if (launch.count == 0) return;
        if (is_stalled_sum())
            stream_of(stream).enqueue([] {
                while (true) ::pause();
            });
        run_kernel(launch, launch.count, tree_sum_thread, stream);
    });
}

// Here one thread comes after the other; a GPU's add atomically.
void add_squares(
    const SquaresLaunch& launch, std::int64_t block, int thread, std::int64_t blocks, int threads) {
    std::array<std::int64_t, exact::words> own{};
    exact::add_own(launch, block, thread, blocks, threads, own.data());
    for (std::size_t i = 0; i < own.size(); ++i) launch.words[i] += own[i];
}

// As many floats a thread as the kernel's grid has.
int start_squares(SquaresLaunch launch, KernelThread<SquaresLaunch> thread, void* stream) {
    if (const int lost = fault_of_call()) return lost;
    reach(launch.values, launch.words);
    constexpr std::int64_t floats = exact::squares_of_thread;
    run_kernel(launch, (launch.count + floats - 1) / floats, thread, stream);
    return 0;
}

}  // namespace

Stream& stream_of(void* handle) {
    if (handle == nullptr) return machine().default_stream(Machine::device());
    return *static_cast<Stream*>(handle);
}

extern "C" {

const char* lockstep_cuda_version() {
    return version_text().data();
}

void lockstep_cuda_fill(CudaApi* api) {
    add_devices(*api);
    add_memory(*api);
    add_streams(*api);
    add_sums(*api);
}

int lockstep_cuda_transform(const StageLaunch* stages, int count, void* stream) {
    if (const int lost = fault_of_call()) return lost;
    for (StageLaunch stage : std::vector(stages, stages + count)) {
        reach(stage.bytes, stage.floats, stage.out, stage.draws, stage.mean, stage.scale);
        if (pixel::elements_of(stage) > 0)
            run_kernel(stage, pixel::elements_of(stage), pixel::stage_thread, stream);
    }
    return 0;
}

int lockstep_cuda_mix(const MixLaunch* given, void* stream) {
    if (const int lost = fault_of_call()) return lost;
    MixLaunch launch = *given;
    reach(launch.in, launch.out, launch.rows);
    if (pixel::elements_of(launch) > 0)
        run_kernel(launch, pixel::elements_of(launch), pixel::mix_thread, stream);
    return 0;
}

int lockstep_cuda_update(const UpdateBatch* given, void* stream) {
    if (const int lost = fault_of_call()) return lost;
    UpdateBatch batch = *given;
    for (UpdateLaunch& launch : std::span(batch.launches, static_cast<std::size_t>(batch.count)))
        reach(launch.values,
              launch.gradients,
              launch.first,
              launch.second,
              launch.decided,
              launch.rate,
              launch.mark);
    run_blocks(
        batch.blocks(),
        [batch](std::int64_t block, int thread, std::int64_t) {
            update::batch_thread(batch, block, thread, threads_of_block);
        },
        stream);
    return 0;
}

int lockstep_cuda_decide(const DecisionLaunch* given, void* stream) {
    if (const int lost = fault_of_call()) return lost;
    DecisionLaunch launch = *given;
    reach(launch.squares, launch.others, launch.out);
    stream_of(stream).enqueue([=] { update::decide(launch); });
    return 0;
}

int lockstep_cuda_own_rates(const OwnRatesLaunch* given, void* stream) {
    if (const int lost = fault_of_call()) return lost;
    OwnRatesLaunch launch = *given;
    reach(launch.sums, launch.decided, launch.out);
    run_kernel(launch, launch.tensors, update::own_rates_thread, stream);
    return 0;
}

int lockstep_cuda_add_squares(const SquaresLaunch* given, void* stream) {
    return start_squares(*given, add_squares, stream);
}

int lockstep_cuda_add_nonfinite(const SquaresLaunch* given, void* stream) {
    return start_squares(*given, exact::nonfinite_thread, stream);
}

}  // extern "C"
}  // namespace simcuda
