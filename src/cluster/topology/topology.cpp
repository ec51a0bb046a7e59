// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/topology.hpp"

#include "topology/nvml.hpp"
#include "topology_readers.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

bool is_in_container(const fs::path& root) {
    std::error_code missing;
    return fs::exists(root / ".dockerenv", missing) ||
           fs::exists(root / "run/.containerenv", missing) ||
           fs::exists(root / "run/systemd/container", missing) ||
           fs::exists(root / ".singularity.d", missing);
}

/// A container may show devices of NUMA nodes that it hides.
void forget_hidden_numa_node(const NodeTopology& node, PciPlace& place) {
    if (std::ranges::find(node.numa_nodes, place.numa_node, &NumaNode::id) == node.numa_nodes.end())
        place.numa_node = -1;
}

}  // namespace

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

NodeTopology read_topology(const TopologySource& source) {
    const auto& root = source.root;
    NodeTopology node{read_node_facts(root)};
    node.is_container = is_in_container(root);
    read_processors(source, node);
    node.gpus = read_pci_gpus(root);
    add_nvml_facts(source.nvml, node);
    node.rdma_ports = read_rdma_ports(root);
    node.interfaces = read_interfaces(root);
    if (root == "/") add_live_addresses(node.interfaces);
    node.limits = read_resource_limits(root);
    node.kernel = read_kernel_facts(root);
    complete_topology(node);
    for (auto& gpu : node.gpus) forget_hidden_numa_node(node, gpu.pci);
    for (auto& port : node.rdma_ports) forget_hidden_numa_node(node, port.pci);
    return node;
}

NodeTopology read_topology() {
    const NvmlLibrary library;
    NodeTopology node = read_topology({"/", library.functions()});
    if (!node.gpus.empty() && library.functions() == nullptr)
        node.notes.push_back(library.why_not());
    return node;
}

}  // namespace lockstep
