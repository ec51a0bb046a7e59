// SPDX-License-Identifier: Apache-2.0
/// @file
/// Describes this machine's GPUs and their libraries in one line.
#pragma once

#include <string>

namespace lockstep {

/// Returns the reason why no GPU driver is usable (libcuda.so.1 cannot be loaded), or "".
std::string gpu_driver_fault();

/// The libraries besides the driver, each with its path, or the reason why it cannot be loaded.
struct GpuLibraries {
    std::string own, own_fault;    ///< liblockstep_cuda.so
    std::string nccl, nccl_fault;  ///< "NCCL 2.28.9 (/usr/lib/libnccl.so.2)"
};

/// Loads them, even without a driver. NCCL is `nccl_path`, or if that is empty the first that is
/// found. Never throws Error.
GpuLibraries load_gpu_libraries(const std::string& nccl_path = {});

/// Returns "2 x NVIDIA H200, NCCL 2.28.9 (/usr/lib/libnccl.so.2)", "none (no driver)", or the
/// reason why they cannot be used. Loads the libraries if there is a driver; NCCL as
/// load_gpu_libraries() does. Never throws Error.
std::string describe_gpus(const std::string& nccl_path = {});

}  // namespace lockstep
