// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/placement.hpp"

#include "placement_cases.hpp"

#include <thread>

#include <gmock/gmock.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace lockstep::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

EarlyBinding early(const NodeTopology& node,
                   int local_rank,
                   const std::map<std::string, std::string>& more = {},
                   const std::vector<int>& offered = {}) {
    std::map<std::string, std::string> variables{
        {"OMPI_COMM_WORLD_RANK", std::to_string(local_rank)},
        {"OMPI_COMM_WORLD_SIZE", "2"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(local_rank)},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
    variables.insert(more.begin(), more.end());
    const Environment environment(variables);
    return early_binding(node, read_launch_facts(environment), environment, offered);
}

TEST(EarlyBinding, GivesUnboundRanksTheirShareAndOpenMpItsPlaces) {
    const auto binding = early(node_of("cpu16"), 1);
    EXPECT_THAT(binding.cpus, ElementsAre(8, 9, 10, 11, 12, 13, 14, 15));
    EXPECT_EQ(binding.variables.at("LOCKSTEP_BOUND"), "8-15");
    EXPECT_EQ(binding.variables.at("OMP_NUM_THREADS"), "8");
    EXPECT_EQ(binding.variables.at("OMP_PLACES"), "threads");
    EXPECT_EQ(binding.variables.at("OMP_PROC_BIND"), "close");
}

TEST(EarlyBinding, LeavesTheUsersOpenMpSettingsAlone) {
    const auto binding = early(node_of("cpu16"), 0, {{"OMP_PLACES", "sockets"}});
    EXPECT_FALSE(binding.cpus.empty());
    EXPECT_FALSE(binding.variables.contains("OMP_PROC_BIND"));
    for (const auto* name : {"GOMP_CPU_AFFINITY", "KMP_AFFINITY"}) {
        const auto none = early(node_of("cpu16"), 0, {{name, "0-3"}});
        EXPECT_THAT(none.cpus, IsEmpty());
        EXPECT_THAT(none.why_not, HasSubstr(std::string(name) + " is set"));
    }
    EXPECT_THAT(early(node_of("cpu16"), 0, {{"LOCKSTEP_BOUND", "off"}}).cpus, IsEmpty());
}

TEST(EarlyBinding, KeepsWhatALauncherBoundAndCrowdedNodes) {
    auto node = node_of("cpu16");
    node.allowed_cpus = {0, 1};
    EXPECT_THAT(early(node, 0).cpus, IsEmpty()) << "bound";
    node = node_of("two-core-vm");
    node.cpus = node.allowed_cpus = {0};
    node.cores = {{0}};
    EXPECT_THAT(early(node, 0).cpus, IsEmpty()) << "two ranks, one core";
}

TEST(EarlyBinding, SharesOutWhatTheLauncherItselfMayUse) {
    auto node = node_of("cpu16");
    node.allowed_cpus = {4, 5, 6, 7};
    EXPECT_THAT(early(node, 1).cpus, IsEmpty()) << "bound by it";
    EXPECT_THAT(early(node, 1, {}, {4, 5, 6, 7}).cpus, ElementsAre(6, 7));
}

TEST(EarlyBinding, TakesMemoryFromTheNumaNodeOfTheCores) {
    auto node = node_of("two-socket");
    EXPECT_EQ(early(node, 0).memory_node, 0);
    EXPECT_EQ(early(node, 1).memory_node, 1);
    node.allowed_cpus = {24, 25};
    EXPECT_EQ(early(node, 0).memory_node, 1) << "the launcher's cores";
    EXPECT_EQ(early(node_of("two-core-vm"), 0).memory_node, std::nullopt);
}

TEST(EarlyBinding, DoesNothingOutsideALaunch) {
    const Environment none(std::map<std::string, std::string>{});
    EXPECT_THAT(early_binding(node_of("cpu16"), read_launch_facts(none), none).cpus, IsEmpty());
}

/// A policy is a thread's own: what one thread sets leaves the test program alone.
template <class Body>
void in_a_thread(Body&& body) {
    std::thread(body).join();
}

bool may_set_policies() {
    bool may = false;
    in_a_thread([&] { may = ::syscall(SYS_set_mempolicy, MPOL_DEFAULT, nullptr, 0) == 0; });
    return may;
}

TEST(MemoryNode, IsTheOneOfAllCores) {
    const auto node = node_of("two-socket");
    EXPECT_EQ(memory_node_of(node, {0, 1, 23}), 0);
    EXPECT_EQ(memory_node_of(node, {24, 47, 95}), 1);
    EXPECT_EQ(memory_node_of(node, {23, 24}), std::nullopt) << "both";
    EXPECT_EQ(memory_node_of(node, {}), std::nullopt);
    EXPECT_EQ(memory_node_of(node, {4000}), std::nullopt);
}

TEST(MemoryNode, IsNoneWhereThereIsNoChoice) {
    EXPECT_EQ(memory_node_of(node_of("two-core-vm"), {0}), std::nullopt);
    EXPECT_EQ(memory_node_of(node_of("cloud-vm"), {0}), std::nullopt);
    auto node = node_of("two-socket");
    node.numa_nodes[1].memory_bytes = 0;
    EXPECT_EQ(memory_node_of(node, {0}), std::nullopt);
}

TEST(MemoryPolicy, IsReadBackAsItWasSet) {
    if (!may_set_policies()) GTEST_SKIP() << "this container forbids set_mempolicy";
    in_a_thread([] {
        EXPECT_EQ(preferred_memory_node(), std::nullopt);
        EXPECT_TRUE(prefer_memory_of(0));
        EXPECT_EQ(preferred_memory_node(), 0);
        EXPECT_TRUE(prefer_memory_of(0)) << "again, as after exec";
        std::optional<int> inherited;
        std::thread([&] { inherited = preferred_memory_node(); }).join();
        EXPECT_EQ(inherited, 0);
    });
    EXPECT_EQ(preferred_memory_node(), std::nullopt) << "the thread's own";
}

TEST(MemoryPolicy, OfTheUserIsKept) {
    if (!may_set_policies()) GTEST_SKIP() << "this container forbids set_mempolicy";
    in_a_thread([] {
        unsigned long nodes = 1;
        ASSERT_EQ(::syscall(SYS_set_mempolicy, MPOL_BIND, &nodes, 64), 0);
        EXPECT_FALSE(prefer_memory_of(0));
        int mode = 0;
        ASSERT_EQ(::syscall(SYS_get_mempolicy, &mode, nullptr, 0, nullptr, 0), 0);
        EXPECT_EQ(mode, MPOL_BIND);
    });
}

TEST(MemoryPolicy, OfANodeThatIsNotThereIsNoError) {
    in_a_thread([] {
        EXPECT_FALSE(prefer_memory_of(1000));
        EXPECT_FALSE(prefer_memory_of(-1));
        EXPECT_FALSE(prefer_memory_of(1 << 20));
        EXPECT_EQ(preferred_memory_node(), std::nullopt);
    });
}

}  // namespace
}  // namespace lockstep::test
