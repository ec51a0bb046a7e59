// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/job_request.hpp"

#include "mini_cluster_text.hpp"

#include <algorithm>

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// Two sockets of 28 cores with two threads each, and eight GPUs.
NodeGroup dgx() {
    return {.partition = "gpu",
            .state = "idle",
            .nodes = 4,
            .cpus = 112,
            .memory_mb = 2'000'000,
            .gpus = {{"h100", 8}},
            .sockets = 2,
            .socket_cores = 28,
            .core_threads = 2};
}

SlurmFacts dgx_facts() {
    SlurmFacts facts;
    facts.partitions = {{.name = "gpu", .is_default = true, .state = "UP", .total_nodes = 4}};
    facts.groups = {dgx()};
    return facts;
}

Placement plan_of(const std::vector<SbatchOptions>& parts,
                  const SlurmFacts& facts,
                  int threads = 0) {
    return plan_job_map(read_request(parts), facts, threads);
}

TEST(JobMap, CountsCpusAsLinuxDoes) {
    const NodeTopology node = planned_node(dgx(), {.takes_whole_nodes = true});
    EXPECT_EQ(node.cpus.size(), 112u);
    EXPECT_THAT(node.cores[0], ElementsAre(0, 56));
    EXPECT_THAT(node.cores[28], ElementsAre(28, 84));
    EXPECT_EQ(node.sockets[1].front(), 28);
    EXPECT_EQ(node.numa_nodes[1].cpus.back(), 111);
    EXPECT_EQ(node.allowed_cpus, node.cpus);
}

TEST(JobMap, GivesAJobTheCoresItAsksFor) {
    const auto node = planned_node(dgx(), {.node_tasks = 3, .task_cpus = 3});
    // Nine CPUs are five cores.
    EXPECT_THAT(node.allowed_cpus, ElementsAre(0, 1, 2, 3, 4, 56, 57, 58, 59, 60));
}

TEST(JobMap, BelievesSlurmsCountOfCpusMore) {
    NodeGroup odd = dgx();
    odd.cpus = 56;  // one CPU a core
    EXPECT_EQ(planned_node(odd, {}).cores.size(), 56u);
    EXPECT_EQ(planned_node(odd, {}).sockets.size(), 2u);
    odd.cpus = 7;
    EXPECT_EQ(planned_node(odd, {}).cores.size(), 7u);
}

TEST(JobMap, PutsRanksNextToTheirGpus) {
    const auto plan = plan_of({{{"nodes", "2"},
                                {"ntasks-per-node", "8"},
                                {"cpus-per-task", "14"},
                                {"gpus-per-node", "8"}}},
                              dgx_facts());
    ASSERT_EQ(plan.seats.size(), 16u);
    EXPECT_FALSE(plan.names_hosts);
    EXPECT_EQ(plan.seats[0].host, "gpu:0");
    EXPECT_EQ(plan.seats[8].host, "gpu:1");
    EXPECT_EQ(plan.seats[5].gpu, "gpu5");
    EXPECT_THAT(plan.seats[3].numa_nodes, ElementsAre(0));
    EXPECT_THAT(plan.seats[4].numa_nodes, ElementsAre(1));
    EXPECT_EQ(plan.seats[15].cpus.size(), 7u);
}

TEST(JobMap, FillsNodesInTurn) {
    const auto plan = plan_of({{{"nodes", "2"}, {"ntasks", "3"}}}, test::mini_facts(), 1);
    std::vector<std::string> hosts;
    for (const RankSeat& seat : plan.seats) hosts.push_back(seat.host);
    EXPECT_THAT(hosts, ElementsAre("debug:0", "debug:0", "debug:1"));
}

TEST(JobMap, CountsRanksOverAllParts) {
    const auto plan = plan_of({{{"partition", "debug"}, {"ntasks-per-node", "2"}},
                               {{"partition", "cpu"}, {"nodes", "2"}, {"ntasks-per-node", "1"}}},
                              test::mini_facts(),
                              1);
    ASSERT_EQ(plan.seats.size(), 4u);
    for (int rank = 0; rank < 4; ++rank)
        EXPECT_EQ(plan.seats[static_cast<std::size_t>(rank)].rank, rank);
    EXPECT_EQ(plan.seats[3].host, "cpu:1");
}

TEST(JobMap, IsAComment) {
    const auto text = job_map_text(
        read_request({{{"nodes", "2"}, {"ntasks-per-node", "2"}}}), test::mini_facts(), 1);
    EXPECT_THAT(text,
                AllOf(HasSubstr("# map, planned"),
                      HasSubstr("#   nodes of 'debug': 2 x 4 cores x 1 thread(s), 4 GPUs\n"),
                      HasSubstr("#   2 nodes | 4 ranks x 1 thread\n")));
    EXPECT_THAT("\n" + text.substr(0, text.size() - 1), Not(testing::ContainsRegex("\n[^#]")));
}

TEST(JobMap, SaysWhyThereIsNone) {
    const auto text = job_map_text(
        read_request({{{"ntasks-per-node", "4"}, {"gpus-per-node", "2"}}}), test::mini_facts(), 1);
    EXPECT_THAT(text, AllOf(HasSubstr("none (E608)"), HasSubstr("4 ranks on debug:0 for 2 GPU")));
}

TEST(JobMap, ShortensLongTables) {
    SlurmFacts facts = dgx_facts();
    facts.groups[0].nodes = 40;
    facts.partitions[0].total_nodes = 40;
    const auto text = job_map_text(
        read_request({{{"nodes", "40"}, {"ntasks-per-node", "8"}, {"cpus-per-task", "2"}}}),
        facts,
        1);
    EXPECT_LT(std::ranges::count(text, '\n'), 50);
    EXPECT_THAT(text, HasSubstr("lines more"));
}

}  // namespace
}  // namespace lockstep
