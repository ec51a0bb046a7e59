// SPDX-License-Identifier: Apache-2.0
// CUDA's handles and functions as Lockstep calls them.
#pragma once

#include "simcuda/machine.hpp"

namespace lockstep {
struct CudaApi;
}

namespace simcuda {

/// Of a cudaStream_t; nullptr: the default stream of the calling thread's device.
Stream& stream_of(void* handle);

void fill(lockstep::CudaApi& api);

}  // namespace simcuda
