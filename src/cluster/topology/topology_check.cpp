// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/core/error.hpp"

#include "topology_readers.hpp"

#include <algorithm>
#include <cctype>
#include <set>
#include <span>

#include <fmt/format.h>

namespace lockstep {
namespace {

Error contradiction(const std::string& origin, const std::string& what) {
    return Error("E606",
                 fmt::format("'{}': {}", origin, what),
                 "a plan made from it would not fit any node",
                 "correct the file, or write it again with 'lockstep map --save-topology FILE'");
}

void lower(std::string& text) {
    std::ranges::transform(
        text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
}

/// No CPU is in two of `groups`, and nothing else is in any.
std::set<int> check_members(std::span<const std::vector<int>> groups,
                            const NodeTopology& node,
                            const char* noun,
                            const std::string& origin) {
    std::set<int> seen;
    for (const auto& group : groups)
        for (const int cpu : group) {
            check(std::ranges::binary_search(node.cpus, cpu), [&] {
                return contradiction(origin,
                                     fmt::format("CPU {} is in a {}, but the CPUs are {}",
                                                 cpu,
                                                 noun,
                                                 cpu_list_text(node.cpus)));
            });
            check(seen.insert(cpu).second, [&] {
                return contradiction(origin, fmt::format("CPU {} is in two {}s", cpu, noun));
            });
        }
    return seen;
}

/// And each is in one.
void check_groups(std::span<const std::vector<int>> groups,
                  const NodeTopology& node,
                  const char* noun,
                  const std::string& origin) {
    const auto seen = check_members(groups, node, noun, origin);
    for (const int cpu : node.cpus)
        check(seen.contains(cpu),
              [&] { return contradiction(origin, fmt::format("CPU {} is in no {}", cpu, noun)); });
}

void check_cpus(const NodeTopology& node, const std::string& origin) {
    check(!node.cpus.empty(), [&] { return contradiction(origin, "there are no CPUs"); });
    for (const int cpu : node.allowed_cpus)
        check(std::ranges::binary_search(node.cpus, cpu), [&] {
            return contradiction(
                origin,
                fmt::format(
                    "CPU {} is allowed, but the CPUs are {}", cpu, cpu_list_text(node.cpus)));
        });
    std::vector<std::vector<int>> by_numa;
    std::set<int> ids;
    for (const auto& numa : node.numa_nodes) {
        by_numa.push_back(numa.cpus);
        check(ids.insert(numa.id).second, [&] {
            return contradiction(origin, fmt::format("NUMA node {} is there twice", numa.id));
        });
    }
    check_groups(node.cores, node, "core", origin);
    check_groups(node.l3_groups, node, "cache", origin);
    check_groups(node.sockets, node, "socket", origin);
    check_members(by_numa, node, "NUMA node", origin);  // containers hide some of them
}

void check_device(const PciPlace& place,
                  const std::string& name,
                  const NodeTopology& node,
                  const std::string& origin) {
    const bool is_known = std::ranges::any_of(
        node.numa_nodes, [&](const NumaNode& numa) { return numa.id == place.numa_node; });
    check(place.numa_node < 0 || is_known, [&] {
        return contradiction(
            origin, fmt::format("{} is on NUMA node {}, which is missing", name, place.numa_node));
    });
}

void check_devices(const NodeTopology& node, const std::string& origin) {
    std::set<std::string> addresses, uuids, ports;
    for (const auto& gpu : node.gpus) {
        check_device(gpu.pci, "GPU " + gpu.pci.address, node, origin);
        check(!gpu.pci.address.empty() && addresses.insert(gpu.pci.address).second, [&] {
            return contradiction(origin,
                                 fmt::format("two GPUs have the address '{}'", gpu.pci.address));
        });
        check(gpu.uuid.empty() || uuids.insert(gpu.uuid).second, [&] {
            return contradiction(origin, fmt::format("two GPUs have the UUID '{}'", gpu.uuid));
        });
    }
    for (const auto& port : node.rdma_ports) {
        check_device(port.pci, port.name(), node, origin);
        check(ports.insert(port.name()).second, [&] {
            return contradiction(origin, fmt::format("port {} is there twice", port.name()));
        });
    }
}

}  // namespace

void complete_topology(NodeTopology& node) {
    if (node.allowed_cpus.empty()) node.allowed_cpus = node.cpus;
    if (node.cores.empty())
        for (const int cpu : node.cpus) node.cores.push_back({cpu});
    if (node.sockets.empty()) node.sockets = {node.cpus};
    if (node.numa_nodes.empty()) node.numa_nodes = {{0, node.cpus, node.memory_bytes}};
    if (node.l3_groups.empty())
        for (const auto& numa : node.numa_nodes)
            if (!numa.cpus.empty()) node.l3_groups.push_back(numa.cpus);
    for (auto& gpu : node.gpus) lower(gpu.pci.address);
    for (auto& port : node.rdma_ports) lower(port.pci.address);
}

void check_topology(const NodeTopology& node, const std::string& origin) {
    check_cpus(node, origin);
    check_devices(node, origin);
}

}  // namespace lockstep
