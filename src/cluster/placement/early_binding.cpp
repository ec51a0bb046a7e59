// SPDX-License-Identifier: Apache-2.0

#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/cluster/placement.hpp"

#include "placement/choices.hpp"

#include <algorithm>
#include <array>
#include <climits>
#include <set>

#include <fmt/format.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace lockstep {
namespace {

constexpr std::size_t mask_nodes = 1024, bits = sizeof(unsigned long) * CHAR_BIT;

/// What the kernel says of this thread. By system call: libnuma has nothing else to give here.
struct MemoryPolicy {
    int mode = MPOL_DEFAULT;
    std::array<unsigned long, mask_nodes / bits> nodes{};
};

std::optional<MemoryPolicy> own_policy() {
    MemoryPolicy policy;
    const auto failed =
        ::syscall(SYS_get_mempolicy, &policy.mode, policy.nodes.data(), mask_nodes + 1, nullptr, 0);
    if (failed != 0) return {};
    return policy;
}

/// Each of them alone decides where an OpenMP runtime, GNU's or Intel's, puts threads.
constexpr std::array deciding{"GOMP_CPU_AFFINITY", "KMP_AFFINITY", "KMP_HW_SUBSET"};
constexpr std::array openmp{"OMP_PLACES", "OMP_PROC_BIND", "OMP_NUM_THREADS"};

template <class Names>
std::string first_set(const Environment& environment, const Names& names) {
    for (const char* name : names)
        if (environment.text(name)) return name;
    return "";
}

// "off", or what a rank that was bound here has.
bool forbids_binding(const std::string& bound) {
    return bound == "off" || parse_cpu_list(bound).has_value();
}

bool is_unbound(const NodeTopology& node, const std::vector<int>& offered) {
    return std::ranges::includes(node.allowed_cpus, available_cpus(node, offered));
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
    if (!before || numa_node < 0 || number >= mask_nodes) return false;
    if (before->mode != MPOL_DEFAULT) return preferred_memory_node() == numa_node;
    MemoryPolicy wanted;
    wanted.nodes[number / bits] = 1ul << (number % bits);
    return ::syscall(SYS_set_mempolicy, MPOL_PREFERRED, wanted.nodes.data(), mask_nodes + 1) == 0;
}

std::optional<int> preferred_memory_node() {
    const auto policy = own_policy();
    if (!policy || policy->mode != MPOL_PREFERRED) return {};
    for (std::size_t i = 0; i < mask_nodes; ++i)
        if ((policy->nodes[i / bits] >> (i % bits) & 1) != 0) return static_cast<int>(i);
    return {};
}

std::string openmp_binding(const Environment& environment) {
    constexpr std::array binding{
        "OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY", "KMP_HW_SUBSET"};
    return first_set(environment, binding);
}

bool may_bind(const LaunchFacts& launch, const Environment& environment) {
    const auto bound = environment.text(bound_variable);
    return (!bound || !forbids_binding(*bound)) && launch.local_size && launch.local_rank &&
           *launch.local_size > 1 && *launch.local_rank >= 0 &&
           *launch.local_rank < *launch.local_size;
}

EarlyBinding early_binding(const NodeTopology& node,
                           const LaunchFacts& launch,
                           const Environment& environment,
                           const std::vector<int>& offered) {
    EarlyBinding binding;
    if (!may_bind(launch, environment)) return binding;
    if (const auto bound = environment.text(bound_variable)) {
        binding.why_not = fmt::format(
            "{} is '{}', and only off is known: ranks are left unbound", bound_variable, *bound);
        return binding;
    }
    const auto cores = static_cast<std::int64_t>(cores_within(node, node.allowed_cpus).size());
    if (!is_unbound(node, offered)) binding.memory_node = memory_node_of(node, node.allowed_cpus);
    if (!is_unbound(node, offered) || cores < *launch.local_size) return binding;
    if (const auto name = first_set(environment, deciding); !name.empty()) {
        binding.why_not = fmt::format("{} is set: ranks are left unbound", name);
        return binding;
    }
    // Ranks may each see other GPUs; the split must be the same for all.
    std::vector<LaunchedRank> ranks;
    for (int i = 0; i < *launch.local_size; ++i) ranks.push_back({i, i, node.allowed_cpus, {}});
    const auto placement = place_on_node(node, ranks, {.compute_on = ComputeOn::cpus});
    const auto& seat = placement.seats[static_cast<std::size_t>(*launch.local_rank)];
    binding.cpus = seat.cpus;
    binding.memory_node = memory_node_of(node, seat.cpus);
    binding.variables[bound_variable] = cpu_list_text(seat.cpus);
    if (!first_set(environment, openmp).empty()) return binding;
    binding.variables["OMP_NUM_THREADS"] = std::to_string(seat.threads);
    // Where a core has several CPUs here, OpenMP's own "cores" would be one place for all of them.
    binding.variables["OMP_PLACES"] = "threads";
    binding.variables["OMP_PROC_BIND"] = "close";
    return binding;
}

bool bind_thread(const std::vector<int>& cpus) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int cpu : cpus)
        if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
    return ::sched_setaffinity(0, sizeof set, &set) == 0;
}

}  // namespace lockstep
