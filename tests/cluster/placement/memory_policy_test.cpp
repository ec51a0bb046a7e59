// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/early_binding.hpp"

#include "placement_cases.hpp"

#include <thread>

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace lockstep::test {
namespace {

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
