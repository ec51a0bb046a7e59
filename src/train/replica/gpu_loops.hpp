// SPDX-License-Identifier: Apache-2.0
// Optimizers' loops as kernels of liblockstep_cuda.so.
#pragma once

#include "lockstep/comm/gpu_runtime.hpp"
#include "lockstep/comm/nccl_exchange.hpp"

#include "replica/update_loops.hpp"

#include <memory>

#include <c10/core/Device.h>

namespace lockstep {

/// Work of `stream`, LibTorch's and the caller's of `exchange`, which adds sums over its ranks. The
/// host waits for none of it. `exchange` outlives all calls. Errors of all: E670 a library that
/// lacks a kernel, E681, and those of the exchange.
std::unique_ptr<UpdateLoops> make_gpu_loops(const std::shared_ptr<const GpuRuntime>& runtime,
                                            GpuExchange& exchange,
                                            c10::Device device,
                                            GpuStream stream);

}  // namespace lockstep
