// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/memory_policy.hpp"

#include <algorithm>
#include <array>
#include <climits>
#include <set>

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace lockstep {
namespace {

constexpr std::size_t most_nodes = 1024, bits = sizeof(unsigned long) * CHAR_BIT;

/// What the kernel says of this thread. By system call: libnuma has nothing else to give here.
struct MemoryPolicy {
    int mode = MPOL_DEFAULT;
    std::array<unsigned long, most_nodes / bits> nodes{};
};

std::optional<MemoryPolicy> own_policy() {
    MemoryPolicy policy;
    const auto failed =
        ::syscall(SYS_get_mempolicy, &policy.mode, policy.nodes.data(), most_nodes + 1, nullptr, 0);
    if (failed != 0) return {};
    return policy;
}

}  // namespace

std::optional<int> memory_node_of(const NodeTopology& node, const std::vector<int>& cpus) {
    const auto with_memory = std::ranges::count_if(
        node.numa_nodes, [](const NumaNode& one) { return one.memory_bytes > 0; });
    std::set<int> found;
    for (const int cpu : cpus) found.insert(numa_node_of(node, cpu));
    if (with_memory < 2 || found.size() != 1 || *found.begin() < 0) return {};
    return *found.begin();
}

bool prefer_memory_of(int numa_node) {
    const auto before = own_policy();
    const auto number = static_cast<std::size_t>(numa_node);
    if (!before || numa_node < 0 || number >= most_nodes) return false;
    if (before->mode != MPOL_DEFAULT) return preferred_memory_node() == numa_node;
    MemoryPolicy wanted;
    wanted.nodes[number / bits] = 1ul << (number % bits);
    return ::syscall(SYS_set_mempolicy, MPOL_PREFERRED, wanted.nodes.data(), most_nodes + 1) == 0;
}

std::optional<int> preferred_memory_node() {
    const auto policy = own_policy();
    if (!policy || policy->mode != MPOL_PREFERRED) return {};
    for (std::size_t i = 0; i < most_nodes; ++i)
        if ((policy->nodes[i / bits] >> (i % bits) & 1) != 0) return static_cast<int>(i);
    return {};
}

}  // namespace lockstep
