// SPDX-License-Identifier: Apache-2.0
// What the table of liblockstep_cuda.so takes from tree_sum_kernel.cu.
#pragma once

#include "nccl/tree_sum.hpp"

#include <cuda_runtime_api.h>

namespace lockstep {

/// Enqueues the sum; returns a cudaError_t.
int launch_tree_sum(const TreeSumLaunch& launch, cudaStream_t stream);

}  // namespace lockstep
