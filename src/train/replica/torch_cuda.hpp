// SPDX-License-Identifier: Apache-2.0
// LibTorch's CUDA part: a separate library, which only ranks that compute on GPUs load.
#pragma once

#include "replica/device_graph.hpp"

#include <string>

#include <c10/core/Device.h>

namespace lockstep {

/// Loads it, before any code asks LibTorch whether there is CUDA, and selects kernels that give the
/// same bits each time. Calls no CUDA function. Errors: E694 it cannot be loaded.
void load_torch_cuda();

/// Call after the GPU was selected: this thread's work goes there. Errors: E694 LibTorch does not
/// see it.
void use_torch_device(c10::Device device);

/// From here on factors of products and convolutions are rounded to TF32, which has 10 bits of
/// fp32's 23 behind the point. Sums are fp32.
void allow_tf32();

/// Loads the library at `path`, after load_torch_cuda(). Returns nothing if it cannot be loaded,
/// with the reason.
MakeDeviceGraph load_device_graphs(const std::string& path, std::string& why_not);

/// Name of the library that comes with the program.
constexpr const char* device_graph_library = "liblockstep_cuda_graph.so";

/// Returns the versions of the GPU's libraries: "CUDA 13.0, cuDNN 9.10.2".
std::string torch_cuda_text();

}  // namespace lockstep
