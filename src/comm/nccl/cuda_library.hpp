// SPDX-License-Identifier: Apache-2.0
// Loads liblockstep_cuda.so, where a GPU's driver is present.
#pragma once

#include "nccl/cuda_api.hpp"
#include "nccl/shared_library.hpp"

#include <string>

namespace lockstep {

struct CudaLibrary {
    SharedLibrary library;
    CudaApi api;
    std::string path;
};

/// Why there is no GPU here ("no driver: libcuda.so.1 ..."), or "".
std::string why_no_driver();

/// A function of that library. Errors: E670 if it has none of that name.
void* function_in(const SharedLibrary& library, const char* name);

/// The file that load_cuda() takes.
std::string cuda_library_path();

/// The library beside the running program (lib/ or ../lib/), or LOCKSTEP_CUDA_LIB.
/// Errors: E670 no driver, no library, or one of another version of Lockstep.
CudaLibrary load_cuda();

}  // namespace lockstep
