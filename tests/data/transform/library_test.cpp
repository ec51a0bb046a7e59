// SPDX-License-Identifier: Apache-2.0
// The library that was built, on any machine: its entry points are there under their names, and say
// by a number that there is no GPU.
#include "lockstep/data/transform.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(TransformLibrary, HasTheEntryPointsAndReportsAMissingGpu) {
    void* const library = ::dlopen(LOCKSTEP_CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << ::dlerror();
    const auto transform =
        reinterpret_cast<TransformEntryPoint>(::dlsym(library, transform_entry_point));
    const auto mix = reinterpret_cast<MixEntryPoint>(::dlsym(library, mix_entry_point));
    ASSERT_NE(transform, nullptr);
    ASSERT_NE(mix, nullptr);
    EXPECT_EQ(transform(nullptr, 0, nullptr), 0);
    const MixLaunch empty{};
    EXPECT_EQ(mix(&empty, nullptr), 0);
    if (void* driver = ::dlopen("libcuda.so.1", RTLD_NOW)) {
        ::dlclose(driver);
        GTEST_SKIP() << "there is a driver: lockstep-gpu-selftest tries the kernels";
    }
    StageLaunch stage;
    stage.stage = {StageKind::window, 1, 2, 2, 2, 2};
    stage.images = 1;
    EXPECT_NE(transform(&stage, 1, nullptr), 0);
    const MixLaunch one{.channels = 1, .height = 1, .width = 1, .images = 1};
    EXPECT_NE(mix(&one, nullptr), 0);
}

}  // namespace
}  // namespace lockstep
