// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/gpu_report.hpp"

#include "lockstep/core/error.hpp"

#include "nccl/cuda_library.hpp"
#include "nccl/nccl_library.hpp"

#include <fmt/format.h>

namespace lockstep {

std::string describe_gpus() {
    if (!why_no_driver().empty()) return "none (no driver)";
    try {
        const CudaLibrary cuda = load_cuda();
        int count = 0;
        check_cuda(cuda.api, cuda.api.device_count(&count), "cudaGetDeviceCount");
        CudaDeviceFacts first;
        check_cuda(cuda.api, cuda.api.device_facts(0, &first), "cudaGetDeviceProperties");
        return fmt::format("{} x {}, {}", count, first.name, load_nccl().text());
    } catch (const Error& error) {
        return fmt::format("cannot be used: {}: {}", error.code(), error.what());
    }
}

}  // namespace lockstep
