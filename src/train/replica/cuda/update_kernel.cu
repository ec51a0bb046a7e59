// SPDX-License-Identifier: Apache-2.0
// Optimizers' loops on a GPU: the host's own source for each element; and the parts of an update
// that depend on sums of its own step.
#include "replica/update_launch.hpp"

#include <cuda_runtime_api.h>

namespace lockstep {
namespace {

__global__ void run_update(const __grid_constant__ UpdateBatch batch) {
    update::batch_thread(
        batch, blockIdx.x, static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x));
}

__global__ void run_decide(DecisionLaunch launch) {
    update::decide(launch);
}

__global__ void run_own_rates(OwnRatesLaunch launch) {
    update::own_rates_thread(
        launch, blockIdx.x, static_cast<int>(threadIdx.x), gridDim.x, static_cast<int>(blockDim.x));
}

}  // namespace
}  // namespace lockstep

extern "C" {

__attribute__((visibility("default"))) int lockstep_cuda_update(const lockstep::UpdateBatch* batch,
                                                                void* stream) {
    using namespace lockstep;
    run_update<<<static_cast<unsigned>(batch->blocks()),
                 threads_of_block,
                 0,
                 static_cast<cudaStream_t>(stream)>>>(*batch);
    return cudaGetLastError();
}

__attribute__((visibility("default"))) int lockstep_cuda_decide(
    const lockstep::DecisionLaunch* launch, void* stream) {
    using namespace lockstep;
    run_decide<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(*launch);
    return cudaGetLastError();
}

__attribute__((visibility("default"))) int lockstep_cuda_own_rates(
    const lockstep::OwnRatesLaunch* launch, void* stream) {
    using namespace lockstep;
    if (launch->tensors == 0) return cudaSuccess;
    run_own_rates<<<static_cast<unsigned>(blocks_for(launch->tensors)),
                    threads_of_block,
                    0,
                    static_cast<cudaStream_t>(stream)>>>(*launch);
    return cudaGetLastError();
}

}  // extern "C"
