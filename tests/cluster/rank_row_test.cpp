// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/rank_row.hpp"

#include "support/caught.hpp"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

RankRow row_of(int rank, std::vector<int> cpus) {
    return {.rank = rank,
            .host = "node-a",
            .host_id = "boot/node-a",
            .cpus = std::move(cpus),
            .instruction_set = InstructionSet::avx2,
            .memory_bytes = 8ull << 30};
}

TEST(RankRow, IsMadeOfTheNodesFacts) {
    NodeFacts node;
    node.host = "node-a";
    node.boot_id = "boot";
    node.allowed_cpus = {0, 1};
    node.instruction_set = InstructionSet::avx512;
    node.memory_bytes = 100;
    node.control_group.memory_limit_bytes = 60;
    const auto row = make_rank_row(node, 3);
    EXPECT_EQ(row.rank, 3);
    EXPECT_EQ(row.host_id, "boot/node-a");
    EXPECT_EQ(row.instruction_set, InstructionSet::avx512);
    EXPECT_EQ(row.memory_bytes, 60u);
    EXPECT_TRUE(row.memory_is_limited);
}

TEST(RankRow, ComesBackFromItsText) {
    auto row = row_of(3, {0, 1, 2, 8});
    row.memory_is_limited = true;
    const auto text = serialize(row);
    EXPECT_EQ(text.find('\n'), std::string::npos);
    EXPECT_EQ(deserialize<RankRow>(text, "rank row"), row);
    EXPECT_EQ(deserialize<RankRow>(serialize(RankRow{}), "rank row"), RankRow{});
}

TEST(RankRow, RefusesDamagedText) {
    const auto good = serialize(row_of(0, {0}));
    const auto code_of = [](const std::string& text) {
        return test::caught_code([&] { deserialize<RankRow>(text, "rank row"); });
    };
    EXPECT_EQ(code_of("{"), "E222");
    EXPECT_EQ(code_of(R"({"rang": 1})"), "E222");
    auto text = good;
    text.replace(text.find(R"("cpus":"0")"), 10, R"("cpus":"z")");
    EXPECT_EQ(code_of(text), "E222");
    text = good;
    text.replace(text.find(R"("rank":0)"), 8, R"("rank":"")");
    EXPECT_EQ(code_of(text), "E222");
}

TEST(CpuShare, IsAllOfARanksOwnCores) {
    const std::vector rows = {row_of(0, {0, 1}), row_of(1, {2, 3, 4})};
    EXPECT_EQ(cpu_share(rows, 0), (CpuShare{2, 1}));
    EXPECT_EQ(cpu_share(rows, 1), (CpuShare{3, 4}));
}

TEST(CpuShare, DividesCoresAmongRanksThatOverlap) {
    const std::vector rows = {row_of(0, {0, 1, 2}), row_of(1, {2, 3, 4}), row_of(2, {8})};
    EXPECT_EQ(cpu_share(rows, 0), (CpuShare{1, std::nullopt}));
    EXPECT_EQ(cpu_share(rows, 1), (CpuShare{1, std::nullopt}));
    EXPECT_EQ(cpu_share(rows, 2), (CpuShare{1, 8}));
    EXPECT_EQ(ranks_sharing_cpus(rows, 0), 2);
    EXPECT_EQ(ranks_sharing_cpus(rows, 2), 1);
    EXPECT_EQ(ranks_sharing_cpus(rows, 3), 0);
}

TEST(CpuShare, DoesNotMixNodes) {
    std::vector rows = {row_of(0, {0, 1}), row_of(1, {0, 1})};
    rows[1].host_id = "boot/node-b";
    EXPECT_EQ(ranks_sharing_cpus(rows, 0), 1);
    EXPECT_EQ(cpu_share(rows, 0), (CpuShare{2, 1}));
}

std::vector<std::string> warnings(const std::vector<RankRow>& rows,
                                  InstructionSet most = InstructionSet::amx) {
    return hardware_warnings(rows, most);
}

TEST(HardwareWarnings, AreNoneWhereAllIsWell) {
    EXPECT_THAT(warnings({row_of(0, {0}), row_of(1, {1})}), IsEmpty());
    EXPECT_THAT(warnings({}), IsEmpty());
}

TEST(HardwareWarnings, TellOfLittleMemory) {
    std::vector rows{row_of(0, {0}), row_of(1, {1})};
    for (auto& row : rows) {
        row.memory_bytes = 300u << 20;
        row.memory_is_limited = true;
    }
    EXPECT_THAT(warnings(rows),
                ElementsAre("ranks 0-1 of node-a share 300 MiB of memory, the limit of their "
                            "control group, 150 MiB each: even a small model may take 256 MiB; "
                            "fix: ask for more memory (sbatch --mem), or start fewer ranks"));
}

TEST(HardwareWarnings, TellOfMixedProcessors) {
    auto other = row_of(1, {1});
    other.instruction_set = InstructionSet::avx512;
    std::vector rows{row_of(0, {0}), other};
    EXPECT_THAT(warnings(rows),
                ElementsAre(HasSubstr("processors differ (avx2 on rank 0, avx512 on rank 1)")));
    EXPECT_THAT(warnings(rows, InstructionSet::avx2), IsEmpty());
    rows[0].instruction_set = InstructionSet::avx512;
    rows[1].instruction_set = InstructionSet::amx;
    EXPECT_THAT(warnings(rows, InstructionSet::avx512), IsEmpty());
    EXPECT_THAT(warnings(rows), ElementsAre(HasSubstr("(avx512 on rank 0, amx on rank 1)")));
}

RankRow rank_on(const std::string& node, int rank, std::vector<int> cpus) {
    return {.rank = rank, .host = node, .host_id = node, .cpus = std::move(cpus)};
}

TEST(CoreShare, HasEachCoreOfANodeOnce) {
    const std::vector rows = {rank_on("n1", 0, {0, 1}),
                              rank_on("n1", 1, {0, 1}),
                              rank_on("n1", 2, {1, 2}),
                              rank_on("n2", 3, {0, 1, 2, 3})};
    double on_n1 = 0;
    for (const int rank : {0, 1, 2}) on_n1 += core_share(rows, rank, {});
    EXPECT_DOUBLE_EQ(on_n1, 3);
    EXPECT_DOUBLE_EQ(core_share(rows, 0, {}), 0.5 + 1.0 / 3);
    EXPECT_DOUBLE_EQ(core_share(rows, 3, {}), 4);
}

TEST(CoreShare, IsNoMoreThanAQuotaAllows) {
    const std::vector rows = {rank_on("n1", 0, {0, 1}), rank_on("n1", 1, {2, 3})};
    EXPECT_DOUBLE_EQ(core_share(rows, 0, {.cpu_quota = 1.5}), 0.75);
    EXPECT_DOUBLE_EQ(core_share(rows, 0, {.cpu_quota = 64}), 2);
}

UsableMemory limit_of(std::uint64_t group_bytes, std::map<std::string, std::string> variables) {
    NodeFacts node{.memory_bytes = std::uint64_t{64} << 30};
    if (group_bytes > 0) node.control_group.memory_limit_bytes = group_bytes;
    return memory_limit(node, Environment(std::move(variables)));
}

TEST(MemoryLimitOfAJob, IsTheSmallestThatSomebodySet) {
    EXPECT_EQ(limit_of(0, {}).set_by, "node");
    EXPECT_EQ(limit_of(0, {}).bytes, std::uint64_t{64} << 30);
    EXPECT_EQ(limit_of(1 << 30, {}).set_by, "control group");
    EXPECT_EQ(limit_of(1 << 30, {{"SLURM_MEM_PER_NODE", "2048"}}).set_by, "control group");
    EXPECT_EQ(limit_of(1 << 30, {{"SLURM_MEM_PER_NODE", "512"}}).set_by, "SLURM");
    EXPECT_EQ(limit_of(0, {{"SLURM_MEM_PER_CPU", "512"}, {"SLURM_CPUS_ON_NODE", "4"}}).bytes,
              std::uint64_t{2} << 30);
    EXPECT_EQ(limit_of(0, {{"SLURM_MEM_PER_NODE", "lots"}}).set_by, "node");
    EXPECT_EQ(limit_of(0, {{"SLURM_MEM_PER_NODE", "0"}}).set_by, "node");
}

}  // namespace
}  // namespace lockstep
