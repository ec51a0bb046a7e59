// SPDX-License-Identifier: Apache-2.0
// LibTorch's CUDA part: in a library of its own, which only ranks that compute on GPUs load.
#pragma once

#include <c10/core/Device.h>

namespace lockstep {

/// Loads it, before anything asks LibTorch whether there is CUDA, and has it compute with kernels
/// that give the same bits each time. Errors: E694 it cannot be loaded, or finds no GPU.
void load_torch_cuda();

/// This thread's work goes there. Errors: as load_torch_cuda().
void use_torch_device(c10::Device device);

}  // namespace lockstep
