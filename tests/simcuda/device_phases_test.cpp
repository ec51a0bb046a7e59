// SPDX-License-Identifier: Apache-2.0
// The phases of a step are what the GPU does, however far the host is ahead of it.
#include "schedule/train_step.hpp"
#include "simcuda/machine.hpp"

#include <chrono>
#include <thread>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

void keep_busy(int milliseconds) {
    simcuda::machine().default_stream(0).enqueue(
        [=] { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); });
}

TEST(DevicePhases, AreWhatTheDeviceTakes) {
    const double start_s = now_s();
    PhaseClock clock;
    DevicePhases phases(clock, {c10::kCUDA, 0});
    for (int step = 0; step < 2; ++step) {
        clock.take();
        const double asked_s = now_s();
        keep_busy(20);  // samples that are not there yet
        phases.begin_step();
        const double late_s = now_s() - asked_s;
        {
            const PhaseScope scope(clock, Phase::forward);
            keep_busy(40);
        }
        {
            const PhaseScope scope(clock, Phase::backward);
            keep_busy(80);
        }
        simcuda::machine().synchronize(0);
        phases.end_step();
        const double begin_s = now_s();
        const PhaseSeconds seconds = clock.take();
        EXPECT_GE(seconds[Phase::forward], 0.04);
        EXPECT_GE(seconds[Phase::backward], 0.08);
        EXPECT_GE(seconds[Phase::copy], 0.02 - late_s);
        EXPECT_EQ(seconds[Phase::data], 0);
        EXPECT_LT(seconds.sum(), begin_s - start_s + 0.01);
    }
}

TEST(DevicePhases, OfACpuAreTheHosts) {
    PhaseClock clock;
    DevicePhases phases(clock, c10::kCPU);
    clock.take();
    phases.begin_step();
    {
        const PhaseScope scope(clock, Phase::forward);
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    phases.end_step();
    EXPECT_GE(clock.take()[Phase::forward], 0.01);
}

}  // namespace
}  // namespace lockstep
