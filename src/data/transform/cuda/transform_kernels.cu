// SPDX-License-Identifier: Apache-2.0
// Transforms on a GPU: the CPU's own source, one thread for each value of the batch.
#include "transform/kernel_body.hpp"

#include <cuda_runtime_api.h>

namespace lockstep {
namespace {

__global__ void run_stage(StageLaunch launch) {
    pixel::stage_thread(
        launch, blockIdx.x, static_cast<int>(threadIdx.x), gridDim.x, static_cast<int>(blockDim.x));
}

__global__ void run_mix(MixLaunch launch) {
    pixel::mix_thread(
        launch, blockIdx.x, static_cast<int>(threadIdx.x), gridDim.x, static_cast<int>(blockDim.x));
}

unsigned grid_for(std::int64_t elements) {
    return static_cast<unsigned>(blocks_for(elements));
}

}  // namespace
}  // namespace lockstep

extern "C" {

__attribute__((visibility("default"))) int lockstep_cuda_transform(
    const lockstep::StageLaunch* stages, int count, void* stream) {
    using namespace lockstep;
    for (int i = 0; i < count; ++i) {
        if (pixel::elements_of(stages[i]) == 0) continue;
        run_stage<<<grid_for(pixel::elements_of(stages[i])),
                    threads_of_block,
                    0,
                    static_cast<cudaStream_t>(stream)>>>(stages[i]);
        if (const cudaError_t failed = cudaGetLastError()) return failed;
    }
    return cudaSuccess;
}

__attribute__((visibility("default"))) int lockstep_cuda_mix(const lockstep::MixLaunch* launch,
                                                             void* stream) {
    using namespace lockstep;
    if (pixel::elements_of(*launch) == 0) return cudaSuccess;
    run_mix<<<grid_for(pixel::elements_of(*launch)),
              threads_of_block,
              0,
              static_cast<cudaStream_t>(stream)>>>(*launch);
    return cudaGetLastError();
}

}  // extern "C"
