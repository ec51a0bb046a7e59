// SPDX-License-Identifier: Apache-2.0
// Optimizers' loops on a GPU: the host's own source, one thread for each element.
#include "replica/update_launch.hpp"

#include <cuda_runtime_api.h>

namespace lockstep {
namespace {

__global__ void run_update(UpdateLaunch launch) {
    update::thread(
        launch, blockIdx.x, static_cast<int>(threadIdx.x), gridDim.x, static_cast<int>(blockDim.x));
}

}  // namespace
}  // namespace lockstep

extern "C" {

__attribute__((visibility("default"))) int lockstep_cuda_update(
    const lockstep::UpdateLaunch* launch, void* stream) {
    using namespace lockstep;
    if (launch->count == 0) return cudaSuccess;
    run_update<<<static_cast<unsigned>(blocks_for(launch->count)),
                 threads_of_block,
                 0,
                 static_cast<cudaStream_t>(stream)>>>(*launch);
    return cudaGetLastError();
}

}  // extern "C"
