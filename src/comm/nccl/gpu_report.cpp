// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/gpu_selection.hpp"
#include "lockstep/core/error.hpp"

#include "nccl/cuda_api.hpp"
#include "nccl/nccl_api.hpp"

#include <fmt/format.h>

namespace lockstep {

std::string gpu_driver_fault() {
    return why_no_driver();
}

GpuLibraries load_gpu_libraries(const std::string& nccl_path) {
    GpuLibraries found;
    found.own = cuda_library_path();
    SharedLibrary::open(found.own, found.own_fault);
    try {
        found.nccl = load_nccl(nccl_path).text();
    } catch (const Error& error) {
        found.nccl_fault = fmt::format("{} ({})", error.what(), error.why());
    }
    return found;
}

std::string describe_gpus(const std::string& nccl_path) {
    if (!why_no_driver().empty()) return "none (no driver)";
    try {
        const CudaLibrary cuda = load_cuda();
        int count = 0;
        check_cuda(cuda.api, cuda.api.device_count(&count), "cudaGetDeviceCount");
        CudaDeviceFacts first;
        check_cuda(cuda.api, cuda.api.device_facts(0, &first), "cudaGetDeviceProperties");
        return fmt::format("{} x {}, {}", count, first.name, load_nccl(nccl_path).text());
    } catch (const Error& error) {
        return fmt::format("cannot be used: {}: {}", error.code(), error.what());
    }
}

}  // namespace lockstep
