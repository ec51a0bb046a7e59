// SPDX-License-Identifier: Apache-2.0
#include "lockstep/launch/gpu_needs.hpp"

#include "support/unit.hpp"

#include <algorithm>
#include <map>

#include <dlfcn.h>

namespace lockstep {
namespace {

GpuNeedFacts complete() {
    GpuNeedFacts facts;
    facts.has_gpu = facts.has_torch = true;
    facts.driver = "550.54.15";
    facts.own = "/opt/lib/liblockstep_cuda.so";
    facts.nccl = "NCCL 2.28.9 (/opt/libnccl.so.2)";
    facts.torch = "/opt/torch/lib/libtorch_cuda.so";
    return facts;
}

TEST(Ldd, IsReadWithWhatItDoesNotFind) {
    EXPECT_THAT(parse_ldd("\tlinux-vdso.so.1 (0x00007fff)\n"
                          "\tlibcudnn.so.9 => not found\n"
                          "\tlibc10.so => /t/lib/libc10.so (0x00007f17)\n"
                          "\t/lib64/ld-linux-x86-64.so.2 (0x00007f17)\n"),
                ElementsAre(ListedLibrary{"libcudnn.so.9", ""},
                            ListedLibrary{"libc10.so", "/t/lib/libc10.so"}));
    EXPECT_THAT(parse_ldd("ldd: ./x: No such file or directory\n"), IsEmpty());
}

TEST(GpuNeeds, AreOneLineWhereAllIsHereAndNoneWithoutAGpu) {
    EXPECT_EQ(gpu_needs_text(complete()),
              "to train on GPUs all is here: driver 550.54.15, /opt/lib/liblockstep_cuda.so, "
              "/opt/torch/lib/libtorch_cuda.so, NCCL 2.28.9 (/opt/libnccl.so.2)\n");
    GpuNeedFacts facts;
    facts.driver_fault = facts.own_fault = facts.nccl_fault = "no such file";
    EXPECT_EQ(gpu_needs_text(facts), "");
}

TEST(GpuNeeds, NameEachMissingPartWithTheCommandThatGetsIt) {
    GpuNeedFacts facts = complete();
    facts.lacked = {"libcudnn.so.9", "libcusparseLt.so.0"};
    EXPECT_EQ(gpu_needs_text(facts),
              "to train on GPUs what libtorch_cuda.so needs is missing: libcudnn.so.9, "
              "libcusparseLt.so.0 not found, for /opt/torch/lib/libtorch_cuda.so; fix: "
              "scripts/setup gpu gets them; the libraries of a site's module count, too "
              "(LD_LIBRARY_PATH)\n");
    facts = complete();
    facts.driver_fault = "libcuda.so.1: no such file";
    EXPECT_THAT(gpu_needs_text(facts),
                has("driver is missing: libcuda.so.1: no such file (the kernel's part "
                    "is 550.54.15)",
                    "--nv"));
    facts = complete();
    facts.own_fault = "no file";
    EXPECT_THAT(gpu_needs_text(facts), HasSubstr("nvcc and nccl.h"));
    facts = complete();
    facts.has_torch = false;
    EXPECT_THAT(gpu_needs_text(facts),
                HasSubstr("libtorch_cuda.so is not there; fix: scripts/setup"));
    facts.torch.clear();
    EXPECT_THAT(gpu_needs_text(facts), HasSubstr("no LibTorch is known of"));
    facts = complete();
    facts.nccl_fault = "no file";
    EXPECT_THAT(gpu_needs_text(facts),
                HasSubstr("NCCL is missing: no file; fix: scripts/setup gpu"));
}

Environment with_torch(const std::string& path) {
    return Environment(std::map<std::string, std::string>{{"LOCKSTEP_TORCH_CUDA_LIB", path}});
}

TEST(GpuNeeds, AreNotLookedForWithoutAGpu) {
    if (::dlopen("libcuda.so.1", RTLD_LAZY) != nullptr)
        GTEST_SKIP() << "SKIPPED: there is a driver here";
    const NodeTopology node;
    const GpuNeedFacts facts = read_gpu_needs(node, "/bin/true", false, with_torch("/bin/true"));
    EXPECT_FALSE(facts.has_gpu);
    EXPECT_EQ(facts.torch, "");
    EXPECT_EQ(facts.nccl + facts.nccl_fault, "");
}

TEST(GpuNeeds, AreLookedForWhereAGpuIsOnPci) {
    NodeTopology node;
    node.gpus.resize(1);
    node.gpus[0].pci.vendor = "0x10de";
    node.kernel.nvidia_driver = "550.54.15";
    const GpuNeedFacts facts = read_gpu_needs(node, "/bin/true", false, with_torch("/nowhere.so"));
    EXPECT_TRUE(facts.has_gpu);
    EXPECT_EQ(facts.driver, "550.54.15");
    EXPECT_EQ(facts.torch, "/nowhere.so");
    EXPECT_FALSE(facts.has_torch);
}

// A library of ours that needs two that are not where the loader looks.
TEST(GpuNeeds, NameLibrariesThatTheLoaderDoesNotFind) {
    const GpuNeedFacts facts =
        read_gpu_needs({}, "/bin/true", true, with_torch(LOCKSTEP_FAKE_TORCH_CUDA));
    EXPECT_TRUE(facts.has_torch);
    EXPECT_THAT(facts.lacked, ElementsAre("libmade_up_cudnn.so.9", "libmade_up_cufile.so.0"));
    const auto needs = judge_gpu_needs(facts);
    EXPECT_TRUE(std::ranges::any_of(needs, [](const GpuNeed& need) {
        return need.kind == GpuNeedKind::torch_library && !need.fault.empty();
    }));
}

}  // namespace
}  // namespace lockstep
