// SPDX-License-Identifier: Apache-2.0
// The function of tree_sum_kernel.cu for the table of liblockstep_cuda.so.
#pragma once

#include "nccl/tree_sum.hpp"

#include <cuda_runtime_api.h>

namespace lockstep {

/// Enqueues the sum; returns a cudaError_t.
int launch_tree_sum(const TreeSumLaunch& launch, cudaStream_t stream);

}  // namespace lockstep
