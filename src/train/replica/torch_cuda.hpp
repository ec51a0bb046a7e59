// SPDX-License-Identifier: Apache-2.0
// LibTorch's CUDA part: in a library of its own, which only ranks that compute on GPUs load.
#pragma once

#include <c10/core/Device.h>

namespace lockstep {

/// Loads it, before anything asks LibTorch whether there is CUDA, and has it compute with kernels
/// that give the same bits each time. Calls nothing of CUDA. Errors: E694 it cannot be loaded.
void load_torch_cuda();

/// After the GPU was selected: this thread's work goes there. Errors: E694 LibTorch does not see
/// it.
void use_torch_device(c10::Device device);

}  // namespace lockstep
