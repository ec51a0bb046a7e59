// SPDX-License-Identifier: Apache-2.0
// liblockstep_cuda.so: the table of CUDA's functions.
#include "lockstep/core/version.hpp"

#include "nccl/cuda_api.hpp"
#include "nccl/tree_sum.hpp"
#include "simcuda/kernel.hpp"
#include "simcuda/settings.hpp"

#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <unistd.h>

namespace simcuda {
namespace {

using lockstep::CudaApi;
using lockstep::CudaDeviceFacts;
using Status = CudaApi::Status;

constexpr Status invalid_value = 1, out_of_memory = 2, invalid_device = 101;

const char* error_text(Status status) {
    switch (status) {
        case CudaApi::success:
            return "no error";
        case invalid_value:
            return "invalid argument";
        case out_of_memory:
            return "out of memory";
        case invalid_device:
            return "invalid device ordinal";
        case CudaApi::not_ready:
            return "device not ready";
        default:
            return "unspecified launch failure";
    }
}

/// A call that fails when the GPU is lost.
template <class Call>
auto counted(Call call) {
    return [call](auto&&... arguments) -> Status {
        if (const Status lost = fault_of_call()) return lost;
        return call(std::forward<decltype(arguments)>(arguments)...);
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
    api.device_count = counted([](int* count) {
        *count = device_count();
        return CudaApi::success;
    });
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
    api.get_device = counted([](int* device) {
        *device = Machine::device();
        return CudaApi::success;
    });
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
        return CudaApi::success;
    });
    api.destroy_stream = counted([](CudaApi::Stream stream) {
        machine().end_stream(stream_of(stream));
        return CudaApi::success;
    });
    api.create_event = counted([](CudaApi::Event* event) {
        *event = reinterpret_cast<CudaApi::Event>(new Event);
        return CudaApi::success;
    });
    api.destroy_event = counted([](CudaApi::Event event) {
        delete &of(event);
        return CudaApi::success;
    });
    api.record_event = counted([](CudaApi::Event event, CudaApi::Stream stream) {
        of(event).record(stream_of(stream));
        return CudaApi::success;
    });
    api.query_event = [](CudaApi::Event event) -> Status {
        if (const Status lost = fault_of_poll()) return lost;
        return of(event).has_passed() ? CudaApi::success : CudaApi::not_ready;
    };
    api.stream_wait_event = counted([](CudaApi::Stream stream, CudaApi::Event event) {
        if (!is_dropped_wait()) of(event).hold(stream_of(stream));
        return CudaApi::success;
    });
}

void add_sums(CudaApi& api) {
    api.sum_in_tree_order = counted([](lockstep::TreeSumLaunch launch, CudaApi::Stream stream) {
        reach(launch.own, launch.received, launch.merges_after, launch.out);
        if (launch.count == 0) return CudaApi::success;
        if (is_stalled_sum())
            stream_of(stream).enqueue([] {
                while (true) ::pause();
            });
        run_kernel(launch, launch.count, lockstep::tree_sum_thread, stream);
        return CudaApi::success;
    });
}

}  // namespace

Stream& stream_of(void* handle) {
    if (handle == nullptr) return machine().default_stream(Machine::device());
    return *static_cast<Stream*>(handle);
}

}  // namespace simcuda

extern "C" {

const char* lockstep_cuda_version() {
    return lockstep::version_text().data();
}

void lockstep_cuda_fill(lockstep::CudaApi* api) {
    simcuda::add_devices(*api);
    simcuda::add_memory(*api);
    simcuda::add_streams(*api);
    simcuda::add_sums(*api);
}

}  // extern "C"
