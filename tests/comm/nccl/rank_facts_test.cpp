// SPDX-License-Identifier: Apache-2.0
#include "nccl/rank_facts.hpp"

#include "support/caught.hpp"
#include "support/temp_dir.hpp"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

namespace {

using lockstep::Environment;
using lockstep::NcclRankFacts;
using lockstep::test::caught_text;
using testing::HasSubstr;
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
    RC_ASSERT(lockstep::deserialize<NcclRankFacts>(lockstep::serialize(facts), "facts") == facts);
}

TEST(Agreement, IsReachedWhereGpusDifferAndTheRestIsEqual) {
    auto facts = agreeing(9);
    for (NcclRankFacts& rank : facts) rank.settings["NCCL_ALGO"] = "Ring";
    lockstep::check_agreement(facts);
}

TEST(Agreement, NamesBothRanksOfOneGpu) {
    auto facts = agreeing(4);
    facts[3].gpu_uuid = facts[2].gpu_uuid;
    facts[3].gpu_pci = facts[2].gpu_pci;
    EXPECT_THAT(caught_text([&] { lockstep::check_agreement(facts); }),
                HasSubstr("error E673: ranks 2 and 3 use the same GPU: GPU-0 (0000:00:00.0) of "
                          "node1"));
}

TEST(Agreement, NamesTheRanksOfEachVersion) {
    auto facts = agreeing(4);
    facts[1].nccl_version = 22703;
    EXPECT_THAT(caught_text([&] { lockstep::check_agreement(facts); }),
                HasSubstr("error E674: ranks have different NCCLs: 2.27.3 on rank 1, 2.28.9 on "
                          "ranks 0,2-3"));
}

TEST(Agreement, KnowsVersionsThatHang) {
    auto facts = agreeing(2);
    const auto faults = [&] { return lockstep::known_nccl_faults(facts).size(); };
    facts[1].host_id = facts[0].host_id;
    for (NcclRankFacts& rank : facts) rank.nccl_version = 23003;
    EXPECT_EQ(faults(), 0);
    facts[1].host_id = "another";
    EXPECT_EQ(faults(), 1);
    for (NcclRankFacts& rank : facts) rank.settings["NCCL_PXN_DISABLE"] = "1";
    EXPECT_EQ(faults(), 0);
}

TEST(Agreement, NamesRanksAndValuesOfEachSetting) {
    auto facts = agreeing(3);
    facts[0].settings = {{"NCCL_ALGO", "Ring"}, {"NCCL_PROTO", "LL"}};
    facts[1].settings = {{"NCCL_ALGO", "Tree"}, {"NCCL_PROTO", "LL"}};
    facts[2].settings = {{"NCCL_PROTO", "LL"}};
    const std::string text = caught_text([&] { lockstep::check_agreement(facts); });
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
    EXPECT_EQ(lockstep::nccl_settings(environment, "/nowhere"), (Settings{{"NCCL_ALGO", "Ring"}}));
}

TEST(NcclSettings, ReadTheFilesThatNcclReadsInItsOrder) {
    const lockstep::test::TempDir root;
    root.file("home/.nccl.conf", "# a comment\nNCCL_ALGO=Tree\nNCCL_PROTO=LL\n");
    root.file("etc/nccl.conf", "NCCL_PROTO=Simple\nNCCL_NTHREADS=256\nno setting\n");
    const Environment environment(Settings{{"HOME", root / "home"}, {"NCCL_ALGO", "Ring"}});
    EXPECT_EQ(lockstep::nccl_settings(environment, root.path()),
              (Settings{{"NCCL_ALGO", "Ring"}, {"NCCL_PROTO", "LL"}, {"NCCL_NTHREADS", "256"}}));
}

TEST(NcclHostId, IsTheBootOfTheHostOrWhatNcclIsTold) {
    const lockstep::test::TempDir root;
    root.file("proc/sys/kernel/random/boot_id", "5ac1\n");
    EXPECT_THAT(lockstep::nccl_host_id(Environment(Settings{}), root.path()),
                testing::StartsWith("5ac1/"));
    EXPECT_EQ(lockstep::nccl_host_id(Environment(Settings{{"NCCL_HOSTID", "fake1"}})), "fake1");
}

}  // namespace
