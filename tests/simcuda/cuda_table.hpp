// SPDX-License-Identifier: Apache-2.0
// CUDA's handles as Lockstep has them.
#pragma once

#include "simcuda/machine.hpp"

namespace simcuda {

/// Of a cudaStream_t; nullptr: the default stream of the calling thread's device.
Stream& stream_of(void* handle);

}  // namespace simcuda
