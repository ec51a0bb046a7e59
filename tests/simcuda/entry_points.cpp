// SPDX-License-Identifier: Apache-2.0
// liblockstep_cuda.so: the entry points of its kernels.
#include "replica/update_launch.hpp"
#include "simcuda/kernel.hpp"
#include "simcuda/settings.hpp"
#include "transform/kernel_body.hpp"

#include <vector>

using lockstep::MixLaunch;
using lockstep::StageLaunch;
using lockstep::UpdateLaunch;
using simcuda::run_kernel;

namespace pixel = lockstep::pixel;

extern "C" {

int lockstep_cuda_transform(const StageLaunch* stages, int count, void* stream) {
    if (const int lost = simcuda::fault_of_call()) return lost;
    for (StageLaunch stage : std::vector(stages, stages + count)) {
        simcuda::reach(stage.bytes, stage.floats, stage.out, stage.draws, stage.mean, stage.scale);
        if (pixel::elements_of(stage) > 0)
            run_kernel(stage, pixel::elements_of(stage), pixel::stage_thread, stream);
    }
    return 0;
}

int lockstep_cuda_mix(const MixLaunch* given, void* stream) {
    if (const int lost = simcuda::fault_of_call()) return lost;
    MixLaunch launch = *given;
    simcuda::reach(launch.in, launch.out, launch.rows);
    if (pixel::elements_of(launch) > 0)
        run_kernel(launch, pixel::elements_of(launch), pixel::mix_thread, stream);
    return 0;
}

int lockstep_cuda_update(const UpdateLaunch* given, void* stream) {
    if (const int lost = simcuda::fault_of_call()) return lost;
    UpdateLaunch launch = *given;
    simcuda::reach(launch.values, launch.gradients, launch.first, launch.second);
    run_kernel(launch, launch.count, lockstep::update::thread, stream);
    return 0;
}

}  // extern "C"
