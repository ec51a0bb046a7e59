// SPDX-License-Identifier: Apache-2.0
// Loads liblockstep_cuda.so, if a GPU's driver is present.
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

/// Returns the reason why there is no GPU ("no driver: libcuda.so.1 ..."), or "".
std::string why_no_driver();

/// Returns a function of that library. Errors: E670 if it has none of that name.
void* function_in(const SharedLibrary& library, const char* name);

/// Returns the path of the file for load_cuda().
std::string cuda_library_path();

/// Loads the library beside the running program (lib/ or ../lib/), or LOCKSTEP_CUDA_LIB. Errors:
/// E670 no driver, no library, or one of another version of Lockstep.
CudaLibrary load_cuda();

}  // namespace lockstep
