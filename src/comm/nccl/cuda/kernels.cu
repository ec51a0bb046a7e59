// SPDX-License-Identifier: Apache-2.0
// The host's own source for each thread of a GPU: exact sums of squares and the search for what is
// not finite, whose integers can be added in any order; and the tree's sum, one thread for each
// float of a stripe.
#include "lockstep/comm/exact_words.hpp"

#include "nccl/tree_sum.hpp"

#include <cuda_runtime_api.h>

namespace lockstep {
namespace {

__device__ void add_atomically(std::int64_t* to, std::int64_t word) {
    if (word != 0)
        atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(word));
}

__global__ void run_squares(exact::SquaresLaunch launch) {
    __shared__ std::int64_t of_block[exact::words];
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < exact::words) of_block[thread] = 0;
    __syncthreads();
    std::int64_t own[exact::words] = {};
    exact::add_own(launch, blockIdx.x, thread, gridDim.x, static_cast<int>(blockDim.x), own);
    for (int i = 0; i < exact::words; ++i) add_atomically(of_block + i, own[i]);
    __syncthreads();
    if (thread == 0) exact::carry(of_block);
    __syncthreads();
    if (thread < exact::words) add_atomically(launch.words + thread, of_block[thread]);
}

__global__ void run_nonfinite(exact::SquaresLaunch launch) {
    exact::nonfinite_thread(
        launch, blockIdx.x, static_cast<int>(threadIdx.x), gridDim.x, static_cast<int>(blockDim.x));
}

__global__ void run_tree_sum(TreeSumLaunch launch) {
    tree_sum_thread(
        launch, blockIdx.x, static_cast<int>(threadIdx.x), gridDim.x, static_cast<int>(blockDim.x));
}

using Kernel = void (*)(exact::SquaresLaunch);

int start(Kernel kernel, const exact::SquaresLaunch& launch, void* stream) {
    if (launch.count == 0) return cudaSuccess;
    kernel<<<static_cast<unsigned>(exact::squares_blocks(launch.count)),
             threads_of_block,
             0,
             static_cast<cudaStream_t>(stream)>>>(launch);
    return cudaGetLastError();
}

}  // namespace

int launch_tree_sum(const TreeSumLaunch& launch, cudaStream_t stream) {
    if (launch.count == 0) return cudaSuccess;
    run_tree_sum<<<static_cast<unsigned>(blocks_for(launch.count)), threads_of_block, 0, stream>>>(
        launch);
    return cudaGetLastError();
}

}  // namespace lockstep

extern "C" {

__attribute__((visibility("default"))) int lockstep_cuda_add_squares(
    const lockstep::exact::SquaresLaunch* launch, void* stream) {
    return lockstep::start(lockstep::run_squares, *launch, stream);
}

__attribute__((visibility("default"))) int lockstep_cuda_add_nonfinite(
    const lockstep::exact::SquaresLaunch* launch, void* stream) {
    return lockstep::start(lockstep::run_nonfinite, *launch, stream);
}

}  // extern "C"
