// SPDX-License-Identifier: Apache-2.0
// LibTorch's CUDA part: in a library of its own, which only ranks that compute on GPUs load.
#pragma once

#include "replica/device_graph.hpp"

#include <string>

#include <c10/core/Device.h>

namespace lockstep {

/// Loads it, before anything asks LibTorch whether there is CUDA, and has it compute with kernels
/// that give the same bits each time. Calls nothing of CUDA. Errors: E694 it cannot be loaded.
void load_torch_cuda();

/// After the GPU was selected: this thread's work goes there. Errors: E694 LibTorch does not see
/// it.
void use_torch_device(c10::Device device);

/// Of the library at `path`, after load_torch_cuda(). Nothing where it cannot be loaded, with the
/// reason.
MakeDeviceGraph load_device_graphs(const std::string& path, std::string& why_not);

/// Its name, where it comes with the program.
constexpr const char* device_graph_library = "liblockstep_cuda_graph.so";

/// "CUDA 13.0, cuDNN 9.10.2": of the libraries that compute there.
std::string torch_cuda_text();

}  // namespace lockstep
