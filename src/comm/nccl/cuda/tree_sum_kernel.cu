// SPDX-License-Identifier: Apache-2.0
// The tree's sum on a GPU: the host's own source, one thread for each float of a stripe.
#include "nccl/cuda/tree_sum_kernel.hpp"

namespace lockstep {
namespace {

__global__ void run_tree_sum(TreeSumLaunch launch) {
    tree_sum_thread(
        launch, blockIdx.x, static_cast<int>(threadIdx.x), gridDim.x, static_cast<int>(blockDim.x));
}

}  // namespace

int launch_tree_sum(const TreeSumLaunch& launch, cudaStream_t stream) {
    if (launch.count == 0) return cudaSuccess;
    run_tree_sum<<<static_cast<unsigned>(blocks_for(launch.count)), threads_of_block, 0, stream>>>(
        launch);
    return cudaGetLastError();
}

}  // namespace lockstep
