// SPDX-License-Identifier: Apache-2.0
// liblockstep_cuda.so: the entry points of its kernels.
#include "lockstep/comm/exact_words.hpp"

#include "replica/update_launch.hpp"
#include "simcuda/kernel.hpp"
#include "simcuda/settings.hpp"
#include "transform/kernel_body.hpp"

#include <array>
#include <span>
#include <vector>

using lockstep::DecisionLaunch;
using lockstep::MixLaunch;
using lockstep::OwnRatesLaunch;
using lockstep::StageLaunch;
using lockstep::UpdateBatch;
using lockstep::UpdateLaunch;
using lockstep::exact::SquaresLaunch;
using simcuda::run_kernel;

namespace pixel = lockstep::pixel;

namespace {

// Here one thread comes after the other; a GPU's add atomically.
void add_squares(
    const SquaresLaunch& launch, std::int64_t block, int thread, std::int64_t blocks, int threads) {
    std::array<std::int64_t, lockstep::exact::words> own{};
    lockstep::exact::add_own(launch, block, thread, blocks, threads, own.data());
    for (std::size_t i = 0; i < own.size(); ++i) launch.words[i] += own[i];
}

// As many floats a thread as the kernel's grid has.
int start_squares(SquaresLaunch launch, simcuda::KernelThread<SquaresLaunch> thread, void* stream) {
    if (const int lost = simcuda::fault_of_call()) return lost;
    simcuda::reach(launch.values, launch.words);
    constexpr std::int64_t floats = lockstep::exact::squares_of_thread;
    run_kernel(launch, (launch.count + floats - 1) / floats, thread, stream);
    return 0;
}

}  // namespace

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

int lockstep_cuda_update(const UpdateBatch* given, void* stream) {
    if (const int lost = simcuda::fault_of_call()) return lost;
    UpdateBatch batch = *given;
    for (UpdateLaunch& launch : std::span(batch.launches, static_cast<std::size_t>(batch.count)))
        simcuda::reach(launch.values,
                       launch.gradients,
                       launch.first,
                       launch.second,
                       launch.decided,
                       launch.rate,
                       launch.mark);
    simcuda::run_blocks(
        batch.blocks(),
        [batch](std::int64_t block, int thread, std::int64_t) {
            lockstep::update::batch_thread(batch, block, thread, lockstep::threads_of_block);
        },
        stream);
    return 0;
}

int lockstep_cuda_decide(const DecisionLaunch* given, void* stream) {
    if (const int lost = simcuda::fault_of_call()) return lost;
    DecisionLaunch launch = *given;
    simcuda::reach(launch.squares, launch.others, launch.out);
    simcuda::stream_of(stream).enqueue([=] { lockstep::update::decide(launch); });
    return 0;
}

int lockstep_cuda_own_rates(const OwnRatesLaunch* given, void* stream) {
    if (const int lost = simcuda::fault_of_call()) return lost;
    OwnRatesLaunch launch = *given;
    simcuda::reach(launch.sums, launch.decided, launch.out);
    run_kernel(launch, launch.tensors, lockstep::update::own_rates_thread, stream);
    return 0;
}

int lockstep_cuda_add_squares(const SquaresLaunch* given, void* stream) {
    return start_squares(*given, add_squares, stream);
}

int lockstep_cuda_add_nonfinite(const SquaresLaunch* given, void* stream) {
    return start_squares(*given, lockstep::exact::nonfinite_thread, stream);
}

}  // extern "C"
