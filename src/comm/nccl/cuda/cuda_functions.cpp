// SPDX-License-Identifier: Apache-2.0
// liblockstep_cuda.so: the CUDA functions that comm calls through CudaApi.
#include "lockstep/core/version.hpp"

#include "nccl/cuda_api.hpp"

#include <cstdio>

#include <cuda_runtime_api.h>

namespace lockstep {

/// Enqueues the sum (kernels.cu); returns a cudaError_t.
int launch_tree_sum(const TreeSumLaunch& launch, cudaStream_t stream);

namespace {

cudaStream_t native(CudaApi::Stream stream) {
    return reinterpret_cast<cudaStream_t>(stream);
}
cudaEvent_t native(CudaApi::Event event) {
    return reinterpret_cast<cudaEvent_t>(event);
}

std::string uuid_text(const cudaUUID_t& uuid) {
    std::string text = "GPU-";
    for (int i = 0; i < 16; ++i) {
        if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
        char hex[3];
        std::snprintf(hex, sizeof hex, "%02x", static_cast<unsigned char>(uuid.bytes[i]));
        text += hex;
    }
    return text;
}

int device_facts(int device, CudaDeviceFacts* facts) {
    cudaDeviceProp properties{};
    if (const cudaError_t failed = cudaGetDeviceProperties(&properties, device)) return failed;
    char pci[32] = {};
    if (const cudaError_t failed = cudaDeviceGetPCIBusId(pci, sizeof pci, device)) return failed;
    *facts = {uuid_text(properties.uuid),
              pci,
              properties.name,
              properties.totalGlobalMem,
              properties.major};
    return cudaSuccess;
}

int create_stream(CudaApi::Stream* stream) {
    int least = 0, greatest = 0;
    if (const cudaError_t failed = cudaDeviceGetStreamPriorityRange(&least, &greatest))
        return failed;
    return cudaStreamCreateWithPriority(
        reinterpret_cast<cudaStream_t*>(stream), cudaStreamNonBlocking, greatest);
}

void fill(CudaApi& api) {
    api.error_text = [](int status) { return cudaGetErrorString(cudaError_t(status)); };
    api.device_count = cudaGetDeviceCount;
    api.set_device = cudaSetDevice;
    api.device_by_pci = [](const char* pci, int* device) -> int {
        return cudaDeviceGetByPCIBusId(device, pci);
    };
    api.get_device = cudaGetDevice;
    api.device_facts = device_facts;
    api.allocate = cudaMalloc;
    api.release = cudaFree;
    api.lock_pages = [](void* memory, std::size_t bytes) -> int {
        return cudaHostRegister(memory, bytes, cudaHostRegisterPortable);
    };
    api.unlock_pages = cudaHostUnregister;
    api.create_stream = create_stream;
    api.destroy_stream = [](auto stream) -> int { return cudaStreamDestroy(native(stream)); };
    api.create_event = [](CudaApi::Event* event) -> int {
        return cudaEventCreateWithFlags(reinterpret_cast<cudaEvent_t*>(event),
                                        cudaEventDisableTiming);
    };
    api.destroy_event = [](auto event) -> int { return cudaEventDestroy(native(event)); };
    api.record_event = [](auto event, auto stream) -> int {
        return cudaEventRecord(native(event), native(stream));
    };
    api.query_event = [](auto event) -> int { return cudaEventQuery(native(event)); };
    api.stream_wait_event = [](auto stream, auto event) -> int {
        return cudaStreamWaitEvent(native(stream), native(event), 0);
    };
    api.copy_async = [](void* to, const void* from, std::size_t bytes, auto stream) -> int {
        return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, native(stream));
    };
    api.zero_async = [](void* memory, std::size_t bytes, auto stream) -> int {
        return cudaMemsetAsync(memory, 0, bytes, native(stream));
    };
    api.mark_async = [](void* first, std::size_t apart, std::size_t count, auto stream) -> int {
        return cudaMemset2DAsync(first, apart, 0xff, 4, count, native(stream));
    };
    api.sum_in_tree_order = [](const TreeSumLaunch& launch, auto stream) {
        return launch_tree_sum(launch, native(stream));
    };
}

}  // namespace
}  // namespace lockstep

extern "C" {

const char* lockstep_cuda_version() {
    return lockstep::version_text().data();
}

void lockstep_cuda_fill(lockstep::CudaApi* api) {
    lockstep::fill(*api);
}

}  // extern "C"
