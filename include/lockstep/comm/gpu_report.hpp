// SPDX-License-Identifier: Apache-2.0
/// @file
/// This machine's GPUs and their libraries, in one line.
#pragma once

#include <string>

namespace lockstep {

/// Why there is no GPU's driver here (libcuda.so.1 cannot be loaded), or "".
std::string gpu_driver_fault();

/// The libraries besides the driver, each with its path, or the reason why it cannot be loaded.
struct GpuLibraries {
    std::string own, own_fault;    ///< liblockstep_cuda.so
    std::string nccl, nccl_fault;  ///< "NCCL 2.28.9 (/usr/lib/libnccl.so.2)"
};

/// Loads them, also without a driver. NCCL is `nccl_path`, or if that is empty the first
/// that is found. Never throws Error.
GpuLibraries load_gpu_libraries(const std::string& nccl_path = {});

/// "2 x NVIDIA H200, NCCL 2.28.9 (/usr/lib/libnccl.so.2)", "none (no driver)", or why they cannot
/// be used. Loads the libraries if there is a driver; NCCL as load_gpu_libraries() does. Never
/// throws Error.
std::string describe_gpus(const std::string& nccl_path = {});

}  // namespace lockstep
