// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/topology.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace lockstep {

std::string RdmaPort::name() const {
    return fmt::format("{}:{}", device, port);
}

std::string_view interface_kind_name(InterfaceKind kind) {
    constexpr std::array<std::string_view, 11> names{"ethernet",
                                                     "infiniband",
                                                     "loopback",
                                                     "bridge",
                                                     "docker",
                                                     "bond",
                                                     "vlan",
                                                     "tunnel",
                                                     "veth",
                                                     "dummy",
                                                     "other"};
    return names.at(static_cast<std::size_t>(kind));
}

int numa_node_of(const NodeTopology& node, int cpu) {
    const auto found = std::ranges::find_if(node.numa_nodes, [&](const NumaNode& numa) {
        return std::ranges::binary_search(numa.cpus, cpu);
    });
    return found == node.numa_nodes.end() ? -1 : found->id;
}

std::vector<const RdmaPort*> active_rdma_ports(const NodeTopology& node) {
    std::vector<const RdmaPort*> active;
    for (const RdmaPort& port : node.rdma_ports)
        if (port.is_up()) active.push_back(&port);
    return active;
}

std::vector<const GpuFacts*> usable_gpus(const NodeTopology& node) {
    // Where a control group hides GPUs from this process, their render nodes still show in sysfs.
    const bool has_any_driver = std::ranges::any_of(node.gpus, &GpuFacts::has_driver);
    std::vector<const GpuFacts*> usable;
    for (const auto& gpu : node.gpus) {
        const bool is_nvidia = gpu.pci.vendor == "0x10de";
        const bool works = has_any_driver ? gpu.has_driver : gpu.has_render_node;
        if (is_nvidia && works) usable.push_back(&gpu);
    }
    return usable;
}

}  // namespace lockstep
