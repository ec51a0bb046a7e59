// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/known_faults.hpp"

#include <gmock/gmock.h>

namespace {

using namespace lockstep;
using testing::HasSubstr;

std::string words(const SoftwareVersions& versions) {
    std::string text;
    for (const auto& fault : known_faults(versions)) {
        EXPECT_FALSE(fault.source.empty()) << fault.what;
        text += fault.what + ": " + fault.fix;
    }
    return text;
}

TEST(KnownFaults, ReadVersionsAsTheirProgramsWriteThem) {
    EXPECT_EQ(version_number("slurm 25.05.3"), 250503);
    EXPECT_EQ(version_number("slurm-wlm 22.05.8"), 220508);
    EXPECT_EQ(version_number("26.05.0-0rc1"), 260500);
    EXPECT_EQ(version_number("OpenPMIx 5.0.8, repo rev: v5.0.8"), 50008);
    EXPECT_EQ(version_number("5.0.11rc1"), 50011);
    EXPECT_EQ(version_number("2.28"), 22800);
    for (const char* none : {"", "2", "git", "v-1"}) EXPECT_EQ(version_number(none), 0) << none;
}

TEST(KnownFaults, OfNccl) {
    const auto of = [](int version, bool has_several_hosts, bool disables_pxn = false) {
        return words({.nccl = version,
                      .has_several_hosts = has_several_hosts,
                      .disables_pxn = disables_pxn,
                      .is_arm = false});
    };
    for (const int version : {0, 22703, 22802, 22809, 22901, 22903, 23003, 23007})
        EXPECT_EQ(of(version, false), "") << version;
    for (const int version : {22803, 22808})
        EXPECT_THAT(of(version, false), HasSubstr("hang or crash: use 2.28.9 or later")) << version;
    EXPECT_EQ(of(22902, false), "NCCL 2.29.2 is known to hang: use 2.29.3 or later");
    EXPECT_THAT(of(23003, true), HasSubstr("NCCL 2.30.3 may hang between nodes with InfiniBand"));
    EXPECT_EQ(of(23003, true, true), "");
}

TEST(KnownFaults, OfNcclOnArm) {
    for (const int version : {22703, 22809, 22901})
        EXPECT_THAT(words({.nccl = version, .is_arm = true}),
                    HasSubstr("may hang on processors of Arm: use 2.29.3 or later"))
            << version;
    EXPECT_EQ(words({.nccl = 22903, .is_arm = true}), "");
}

TEST(KnownFaults, OfPmixUnderSlurm) {
    for (const int pmix : {50008, 50009})
        for (const int slurm : {220508, 250503, 251101})
            EXPECT_THAT(words({.pmix = pmix, .slurm = slurm}),
                        HasSubstr("hangs in MPI_Init under srun of Slurm before 25.11.2: start the "
                                  "ranks by mpirun"));
    EXPECT_THAT(words({.pmix = 50008, .slurm = 251102}), "");
    EXPECT_THAT(words({.pmix = 50008, .slurm = 260500}), "");
    EXPECT_THAT(words({.pmix = 50008}), "") << "mpirun starts the ranks";
    EXPECT_THAT(words({.pmix = 50007, .slurm = 250503}), "");
    EXPECT_THAT(words({.pmix = 50010, .slurm = 250503}), "");
    EXPECT_THAT(words({.pmix = 40202, .slurm = 220508}), "");
}

}  // namespace
