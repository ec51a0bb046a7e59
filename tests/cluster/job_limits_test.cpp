// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/rank_row.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

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
