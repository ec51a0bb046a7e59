// SPDX-License-Identifier: Apache-2.0
// The real libnccl and liblockstep_cuda.so on a machine that may have no GPU.
#include "lockstep/comm/gpu_selection.hpp"
#include "lockstep/comm/nccl_network.hpp"
#include "lockstep/core/files.hpp"

#include "comm/nccl/fake_ranks.hpp"
#include "nccl/cuda_api.hpp"
#include "nccl/nccl_api.hpp"
#include "nccl/tree_sum.hpp"
#include "support/unit.hpp"

#include <cstdlib>
#include <filesystem>
#include <map>

namespace {

using namespace lockstep;
using namespace lockstep::test;

/// Skips where the loader finds no libnccl.
#define LOCKSTEP_NEEDS_NCCL()                                       \
    if (std::string why; !SharedLibrary::open("libnccl.so.2", why)) \
    GTEST_SKIP() << "SKIPPED: no libnccl.so.2 here, the real NCCL was not tried: " << why

TEST(LoadNccl, SaysWhyAFileCannotBeLoadedAndTakesItsNameFromTheEnvironment) {
    const std::string text = caught_text([] { load_nccl("/nowhere/libnccl.so.2"); });
    EXPECT_THAT(text, HasSubstr("error E671: NCCL cannot be loaded from '/nowhere/libnccl.so.2'"));
    EXPECT_THAT(text, has("No such file", "LOCKSTEP_NCCL_LIB"));
    const Environment environment(
        std::map<std::string, std::string>{{"LOCKSTEP_NCCL_LIB", "/nowhere/else.so"}});
    EXPECT_THAT(caught_text([&] { load_nccl("", environment); }), HasSubstr("/nowhere/else.so"));
    EXPECT_THAT(caught_text([] { load_nccl("libz.so.1"); }),
                HasSubstr("lacks ncclGetVersion, ncclGetUniqueId"));
    EXPECT_EQ(nccl_version_text(22809), "2.28.9");
    EXPECT_EQ(nccl_version_text(2708), "2.7.8");
}

/// In a process of its own: NCCL looks at the variables once.
void exit_by_real_report(const std::filesystem::path& file) {
    auto plan =
        plan_nccl_report(Environment(std::map<std::string, std::string>{}), file, "/nowhere");
    apply(plan);
    const auto nccl = load_nccl();
    nccl::UniqueId id{};
    const bool is_made = nccl.api.get_unique_id(&id) == nccl::success;
    std::fputs(read_file(file).c_str(), stderr);
    std::filesystem::remove_all(file.parent_path());  // this process's own: it begins the test anew
    std::_Exit(is_made ? 0 : 1);
}

TEST(NcclReportPlan, IsFollowedByTheRealOne) {
    LOCKSTEP_NEEDS_NCCL();
    ::setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    testing::GTEST_FLAG(death_test_style) = "threadsafe";
    const TempDir folder;
    EXPECT_EXIT(exit_by_real_report(folder / "nccl.log"),
                testing::ExitedWithCode(0),
                "NCCL INFO NCCL_SOCKET_IFNAME set by environment to lo");
}

TEST(LoadNccl, FindsTheRealOneAndOnlyOne) {
    LOCKSTEP_NEEDS_NCCL();
    const auto nccl = load_nccl();
#ifdef LOCKSTEP_NCCL_HEADER_VERSION
    EXPECT_EQ(nccl_version_text(nccl.version), LOCKSTEP_NCCL_HEADER_VERSION)
        << "nccl.h and libnccl.so.2 of this machine differ";
#endif
    EXPECT_THAT(nccl.text(), HasSubstr("libnccl.so"));
    EXPECT_EQ(loaded_libraries("libnccl.so"), std::vector{nccl.path});
    EXPECT_EQ(load_nccl().path, nccl.path);
}

TEST(LoadNccl, RefusesASecondOne) {
    LOCKSTEP_NEEDS_NCCL();
    const auto first = load_nccl();
    const TempDir folder;
    std::filesystem::copy_file(first.path, folder / "libnccl.so.copy");
    // In a process of its own: what is loaded stays loaded.
    const auto load_another = [&] {
        std::exit(caught_code([&] { load_nccl(folder / "libnccl.so.copy"); }) == "E672" ? 0 : 1);
    };
    EXPECT_EXIT(load_another(), testing::ExitedWithCode(0), "");
}

TEST(RealNccl, GivesDistinctUniqueIds) {
    LOCKSTEP_NEEDS_NCCL();
    const auto nccl = load_nccl();
    nccl::UniqueId a{}, b{};
    ASSERT_EQ(nccl.api.get_unique_id(&a), nccl::success) << nccl.api.get_last_error(nullptr);
    ASSERT_EQ(nccl.api.get_unique_id(&b), nccl::success);
    EXPECT_NE(a.internal, b.internal);
}

TEST(GpuLibraries, AreFoundOrSaidWhyNot) {
    const auto none = load_gpu_libraries("/nowhere/libnccl.so.2");
    EXPECT_THAT(none.nccl_fault, HasSubstr("/nowhere/libnccl.so.2"));
    EXPECT_EQ(none.nccl, "");
    LOCKSTEP_NEEDS_NCCL();
    const auto found = load_gpu_libraries();
    EXPECT_THAT(found.nccl, HasSubstr("NCCL 2."));
    EXPECT_EQ(found.nccl_fault, "");
}

TEST(RealNccl, FailsAtOnceWithoutADriverAndSaysWhy) {
    LOCKSTEP_NEEDS_NCCL();
    if (gpu_driver_fault().empty()) GTEST_SKIP() << "SKIPPED: there is a driver here";
    FakeCuda cuda;
    ThreadBootstrap bootstrap(std::make_shared<Board>(1), 0);
    const auto nccl = load_nccl();
    const auto runtime = std::make_shared<GpuRuntime>(
        std::make_unique<NcclApi>(nccl.api),
        std::make_unique<CudaApi>(cuda.api({"GPU-0", "0000:00:00.0", "fake", 1})),
        nccl.text());
    const std::string text = caught_text([&] { NcclCommunicator(runtime, bootstrap, {}); });
    EXPECT_THAT(text, HasSubstr("error E677: ncclCommInitRankConfig failed: unhandled cuda error"));
    EXPECT_THAT(text, has("NCCL says: ", "fix: nvidia-smi must show the GPU"));
    EXPECT_THAT(text, HasSubstr("CUDA driver version is insufficient for CUDA runtime version"));
}

TEST(LoadCuda, SaysThatThereIsNoDriver) {
    if (gpu_driver_fault().empty()) GTEST_SKIP() << "SKIPPED: there is a driver here";
    const std::string text = caught_text([] { load_cuda(); });
    EXPECT_THAT(text, has("error E670: this machine has no GPU driver", "libcuda.so.1"));
}

#ifdef LOCKSTEP_CUDA_LIBRARY
TEST(CudaLibrary, FillsTheTableAndHasCudasOwnWords) {
    std::string why;
    const SharedLibrary library = SharedLibrary::open(LOCKSTEP_CUDA_LIBRARY, why);
    ASSERT_TRUE(library) << why;
    CudaApi api;
    using Fill = void (*)(CudaApi*);
    reinterpret_cast<Fill>(library.symbol("lockstep_cuda_fill"))(&api);
    EXPECT_STREQ(api.error_text(CudaApi::not_ready), "device not ready");
    if (gpu_driver_fault().empty()) GTEST_SKIP() << "SKIPPED: there is a driver here";
    const TreeSumLaunch one{.partials = 1, .count = 1};
    EXPECT_EQ(api.sum_in_tree_order({}, nullptr), CudaApi::success);  // nothing to do
    EXPECT_NE(api.sum_in_tree_order(one, nullptr), CudaApi::success);
    int count = -1;
    const int status = api.device_count(&count);
    EXPECT_THAT(caught_text([&] { check_cuda(api, status, "cudaGetDeviceCount"); }),
                HasSubstr("error E681: cudaGetDeviceCount failed: CUDA driver version is "
                          "insufficient"));
}
#endif

}  // namespace
