// SPDX-License-Identifier: Apache-2.0
// liblockstep_cuda.so: the entry points of its kernels.
#include "replica/update_launch.hpp"
#include "simcuda/kernel.hpp"
#include "simcuda/settings.hpp"
#include "transform/kernel_body.hpp"

extern "C" {

int lockstep_cuda_transform(const lockstep::StageLaunch* stages, int count, void* stream) {
    using namespace lockstep;
    if (const int lost = simcuda::fault_of_call()) return lost;
    for (const StageLaunch* stage = stages; stage != stages + count; ++stage)
        if (pixel::elements_of(*stage) > 0)
            simcuda::run_kernel(*stage, pixel::elements_of(*stage), pixel::stage_thread, stream);
    return 0;
}

int lockstep_cuda_mix(const lockstep::MixLaunch* launch, void* stream) {
    using namespace lockstep;
    if (const int lost = simcuda::fault_of_call()) return lost;
    if (pixel::elements_of(*launch) > 0)
        simcuda::run_kernel(*launch, pixel::elements_of(*launch), pixel::mix_thread, stream);
    return 0;
}

int lockstep_cuda_update(const lockstep::UpdateLaunch* launch, void* stream) {
    if (const int lost = simcuda::fault_of_call()) return lost;
    simcuda::run_kernel(*launch, launch->count, lockstep::update::thread, stream);
    return 0;
}

}  // extern "C"
