// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/gpu_selection.hpp"

#include "comm/nccl/fake_ranks.hpp"
#include "nccl/rank_facts.hpp"
#include "support/unit.hpp"

#include <cstdlib>

#include <fmt/format.h>
#include <rapidcheck/gtest.h>

namespace lockstep::test {
namespace {

CudaDeviceFacts gpu(int number) {
    return {fmt::format("GPU-{0}{0}{0}{0}", number), fmt::format("0000:{}8:00.0", number), "G", 1};
}

PlannedGpu plan_of(int number) {
    return {gpu(number).pci, gpu(number).uuid};
}

/// A process to which CUDA shows `visible`; every call is noted.
class FakeProcess {
  public:
    explicit FakeProcess(std::vector<CudaDeviceFacts> visible) : visible_(std::move(visible)) {}

    CudaApi api() {
        CudaApi api;
        api.error_text = [](int status) { return status == 101 ? "invalid device" : "failed"; };
        api.device_count = [this](int* count) {
            calls.emplace_back("count");
            *count = static_cast<int>(visible_.size());
            return CudaApi::success;
        };
        api.device_by_pci = [this](const char* pci, int* device) {
            calls.push_back(std::string("by_pci ") + pci);
            for (std::size_t i = 0; i < visible_.size(); ++i)
                if (visible_[i].pci == pci) *device = static_cast<int>(i);
            return *device >= 0 ? CudaApi::success : 101;
        };
        api.set_device = [this](int device) {
            calls.push_back(fmt::format("set {}", device));
            if (device >= static_cast<int>(visible_.size())) return 101;
            if (!is_stuck) selected_ = device;
            return CudaApi::success;
        };
        api.get_device = [this](int* device) {
            calls.emplace_back("get");
            *device = selected_;
            return CudaApi::success;
        };
        api.device_facts = [this](int device, CudaDeviceFacts* facts) {
            calls.push_back(fmt::format("facts {}", device));
            *facts = visible_[static_cast<std::size_t>(device)];
            return CudaApi::success;
        };
        return api;
    }

    std::vector<std::string> calls;
    bool is_stuck = false;  ///< another part of the process selected device 0 for good

  private:
    std::vector<CudaDeviceFacts> visible_;
    int selected_ = 0;
};

TEST(GpuSelection, AsksCudaForNothingBeforeItIsMade) {
    FakeProcess process({gpu(1), gpu(2), gpu(3)});
    const auto selected = select_gpu(process.api(), plan_of(3));
    EXPECT_EQ(selected, (SelectedGpu{2, "0000:38:00.0", "GPU-3333", "G"}));
    EXPECT_THAT(process.calls, ElementsAre("by_pci 0000:38:00.0", "set 2", "get", "facts 2"));
    FakeProcess nameless({gpu(1)});
    EXPECT_EQ(select_gpu(nameless.api(), {gpu(1).pci}).uuid, "GPU-1111");
}

TEST(GpuSelection, SaysWhatIsVisibleWhereThePlannedGpuIsNot) {
    FakeProcess process({gpu(1), gpu(2)});
    EXPECT_THAT(caught_text([&] { select_gpu(process.api(), plan_of(4)); }),
                has("E689: CUDA does not show GPU 0000:48:00.0 (GPU-4444) to this "
                    "rank, but 2 GPU(s): 0000:18:00.0 (GPU-1111), 0000:28:00.0",
                    "invalid device",
                    "srun --gpus-per-node=N, not --gpus-per-task"));
    FakeProcess none({});
    EXPECT_THAT(caught_text([&] { select_gpu(none.api(), plan_of(1)); }),
                HasSubstr("but no GPU at all"));
}

TEST(GpuSelection, RefusesWhatCudaReadsBackOtherwise) {
    FakeProcess stuck({gpu(1), gpu(2)});
    stuck.is_stuck = true;
    EXPECT_THAT(caught_text([&] { select_gpu(stuck.api(), plan_of(2)); }),
                HasSubstr("E690: CUDA selected GPU 0000:18:00.0 (GPU-1111) instead of "
                          "0000:28:00.0 (GPU-2222)"));
    FakeProcess replaced({gpu(1)});
    EXPECT_EQ(caught_code([&] { select_gpu(replaced.api(), {gpu(1).pci, "GPU-9999"}); }), "E690");
}

/// Instances have their GPU's PCI address; only CUDA_VISIBLE_DEVICES names them.
class Instance : public testing::Test {
  protected:
    void SetUp() override { ::unsetenv("CUDA_VISIBLE_DEVICES"); }
    void TearDown() override { ::unsetenv("CUDA_VISIBLE_DEVICES"); }
    const PlannedGpu planned{gpu(1).pci, "MIG-5555"};
};

TEST_F(Instance, IsNamedBeforeTheFirstCall) {
    FakeProcess process({{"GPU-5555", gpu(1).pci, "G", 1}});
    CudaApi api = process.api();
    std::string seen;
    api.set_device = [&, set = api.set_device](int device) {
        if (process.calls.empty()) seen = std::getenv("CUDA_VISIBLE_DEVICES");
        return set(device);
    };
    EXPECT_EQ(select_gpu(api, planned).uuid, "MIG-5555");
    EXPECT_EQ(seen, "MIG-5555");
}

TEST_F(Instance, IsToldByBeingAloneWhereCudaNamesItsGpu) {
    FakeProcess alone({gpu(1)});
    EXPECT_EQ(select_gpu(alone.api(), planned).uuid, "MIG-5555");
    FakeProcess others({gpu(1), gpu(2)});
    EXPECT_EQ(caught_code([&] { select_gpu(others.api(), planned); }), "E690");
}

using GpuClaim = FakeRanksTest;

/// What a rank claims where CUDA shows GPUs from 1 to `visible`.
SelectedGpu claim(const FakeRank& rank, int visible, const PlannedGpu& planned) {
    std::vector<CudaDeviceFacts> gpus;
    for (int number = 1; number <= visible; ++number) gpus.push_back(gpu(number));
    FakeProcess process(std::move(gpus));
    return claim_gpu(process.api(), planned, rank.bootstrap, 20);
}

TEST(GpuClaimAlone, NeedsNoMpi) {
    const auto bootstrap = make_bootstrap(Communicator());
    for (int turn = 0; turn < 2; ++turn) {
        FakeProcess process({gpu(1)});
        EXPECT_EQ(claim_gpu(process.api(), {gpu(1).pci, ""}, *bootstrap, 20).device, 0);
    }
}

TEST_F(GpuClaim, IsGrantedToRanksOnGpusOfTheirOwn) {
    expect_no_errors(run(3, [](const FakeRank& rank) {
        EXPECT_EQ(claim(rank, 3, plan_of(rank.rank + 1)).device, rank.rank);
    }));
}

TEST_F(GpuClaim, NamesBothRanksOfOneGpuOnAllRanks) {
    const auto errors =
        run(3, [](const FakeRank& rank) { claim(rank, 3, plan_of(rank.rank == 0 ? 1 : 2)); });
    ASSERT_THAT(errors, SizeIs(3));
    for (const auto& error : errors)
        EXPECT_THAT(text_of(error),
                    has("E673: ranks 1 and 2 use the same GPU: GPU-2222 "
                        "(0000:28:00.0) of ",
                        "mpirun --map-by ppr:N:node, or srun --ntasks-per-node=N"));
}

// NCCL knows hosts by NCCL_HOSTID, and so do we.
TEST(GpuSharing, MakesEachRankAHostOfItsOwn) {
    const auto first = nccl_variables_of_sharing(0, SharingReach::one_node);
    const auto second = nccl_variables_of_sharing(1, SharingReach::one_node);
    EXPECT_NE(first.at("NCCL_HOSTID"), second.at("NCCL_HOSTID"));
    EXPECT_EQ(first.at("NCCL_SHM_DISABLE"), "1");
    EXPECT_EQ(first.at("NCCL_SOCKET_IFNAME"), "lo");
    const auto far = nccl_variables_of_sharing(1, SharingReach::several_nodes);
    EXPECT_FALSE(far.contains("NCCL_SOCKET_IFNAME")) << "lo leads to no other node";
    std::vector<NcclRankFacts> facts;
    for (const auto& variables : {first, second})
        facts.push_back({.host = "h",
                         .host_id = nccl_host_id(Environment(variables)),
                         .gpu_uuid = "GPU-1",
                         .gpu_pci = gpu(1).pci,
                         .settings = nccl_settings(Environment(variables), "/nowhere")});
    check_agreement(facts);
}

TEST_F(GpuClaim, LeavesInstancesOfOneGpuApart) {
    expect_no_errors(run(2, [](const FakeRank& rank) {
        claim(rank, 1, {gpu(1).pci, fmt::format("MIG-{}", rank.rank)});
    }));
    ::unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST_F(GpuClaim, OfARankThatFailsEndsAllOfThem) {
    // Rank 1's is hidden from it.
    const auto errors =
        run(2, [](const FakeRank& rank) { claim(rank, 1, plan_of(rank.rank + 1)); });
    EXPECT_THAT(text_of(errors[0]),
                HasSubstr("E682: rank 1 gave up: CUDA does not show GPU 0000:28:00.0"));
    EXPECT_EQ(code_of(errors[1]), "E689");
}

using Settings = std::map<std::string, std::string>;

/// Facts of `ranks` ranks that agree, two GPUs to a host.
std::vector<NcclRankFacts> agreeing(int ranks) {
    std::vector<NcclRankFacts> facts;
    for (int rank = 0; rank < ranks; ++rank) {
        const std::string host = "node" + std::to_string(rank / 2);
        const std::string gpu = std::to_string(rank % 2);
        facts.push_back({host, "boot/" + host, "GPU-" + gpu, "0000:0" + gpu + ":00.0", 22809, {}});
    }
    return facts;
}

RC_GTEST_PROP(NcclRankFacts, SurviveTheTrip, ()) {
    const auto settings = *rc::gen::container<std::map<std::string, std::string>>(
        rc::gen::string<std::string>(), rc::gen::just(std::string("a \"b\"\n")));
    NcclRankFacts facts = agreeing(1).front();
    for (const auto& [name, value] : settings)
        facts.settings["NCCL_" + std::to_string(name.size())] = value;
    RC_ASSERT(deserialize<NcclRankFacts>(serialize(facts), "facts") == facts);
}

TEST(Agreement, IsReachedWhereGpusDifferAndTheRestIsEqual) {
    auto facts = agreeing(9);
    for (NcclRankFacts& rank : facts) rank.settings["NCCL_ALGO"] = "Ring";
    check_agreement(facts);
}

TEST(Agreement, NamesBothRanksOfOneGpu) {
    auto facts = agreeing(4);
    facts[3].gpu_uuid = facts[2].gpu_uuid;
    facts[3].gpu_pci = facts[2].gpu_pci;
    EXPECT_THAT(caught_text([&] { check_agreement(facts); }),
                HasSubstr("error E673: ranks 2 and 3 use the same GPU: GPU-0 (0000:00:00.0) of "
                          "node1"));
}

TEST(Agreement, NamesTheRanksOfEachVersionAndThoseThatHang) {
    auto facts = agreeing(4);
    facts[1].nccl_version = 22703;
    EXPECT_THAT(caught_text([&] { check_agreement(facts); }),
                HasSubstr("error E674: ranks have different NCCLs: 2.27.3 on rank 1, 2.28.9 on "
                          "ranks 0,2-3"));
    auto hanging = agreeing(2);
    const auto faults = [&] { return known_nccl_faults(hanging).size(); };
    hanging[1].host_id = hanging[0].host_id;
    for (NcclRankFacts& rank : hanging) rank.nccl_version = 23003;
    EXPECT_EQ(faults(), 0);
    hanging[1].host_id = "another";
    EXPECT_EQ(faults(), 1);
    for (NcclRankFacts& rank : hanging) rank.settings["NCCL_PXN_DISABLE"] = "1";
    EXPECT_EQ(faults(), 0);
}

TEST(Agreement, NamesRanksAndValuesOfEachSetting) {
    auto facts = agreeing(3);
    facts[0].settings = {{"NCCL_ALGO", "Ring"}, {"NCCL_PROTO", "LL"}};
    facts[1].settings = {{"NCCL_ALGO", "Tree"}, {"NCCL_PROTO", "LL"}};
    facts[2].settings = {{"NCCL_PROTO", "LL"}};
    const std::string text = caught_text([&] { check_agreement(facts); });
    EXPECT_THAT(text,
                HasSubstr("error E675: ranks have different NCCL settings: NCCL_ALGO is 'Ring' on "
                          "rank 0, 'Tree' on rank 1, unset on rank 2"));
    EXPECT_THAT(text, Not(HasSubstr("NCCL_PROTO")));
}

TEST(NcclSettings, LeaveOutWhatMayDiffer) {
    const Environment environment(Settings{{"NCCL_DEBUG", "INFO"},
                                           {"NCCL_DEBUG_FILE", "/x"},
                                           {"NCCL_HOSTID", "a"},
                                           {"NCCL_SOCKET_IFNAME", "ib0"},
                                           {"NCCL_ALGO", "Ring"},
                                           {"PATH", "/bin"}});
    EXPECT_EQ(nccl_settings(environment, "/nowhere"), (Settings{{"NCCL_ALGO", "Ring"}}));
}

TEST(NcclSettings, ReadTheFilesThatNcclReadsInItsOrder) {
    const TempDir root;
    root.file("home/.nccl.conf", "# a comment\nNCCL_ALGO=Tree\nNCCL_PROTO=LL\n");
    root.file("etc/nccl.conf", "NCCL_PROTO=Simple\nNCCL_NTHREADS=256\nno setting\n");
    const Environment environment(Settings{{"HOME", root / "home"}, {"NCCL_ALGO", "Ring"}});
    EXPECT_EQ(nccl_settings(environment, root.path()),
              (Settings{{"NCCL_ALGO", "Ring"}, {"NCCL_PROTO", "LL"}, {"NCCL_NTHREADS", "256"}}));
}

TEST(NcclHostId, IsTheBootOfTheHostOrWhatNcclIsTold) {
    const TempDir root;
    root.file("proc/sys/kernel/random/boot_id", "5ac1\n");
    EXPECT_THAT(nccl_host_id(Environment(Settings{}), root.path()), StartsWith("5ac1/"));
    EXPECT_EQ(nccl_host_id(Environment(Settings{{"NCCL_HOSTID", "fake1"}})), "fake1");
}

}  // namespace
}  // namespace lockstep::test
